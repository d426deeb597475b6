//! A file that is written at the end, and replaced as a whole or not at all.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tempfile::{Builder, NamedTempFile};

/// Where text goes once all of it is there.
#[derive(Debug)]
pub(crate) enum Target {
    /// A file beside the one that it becomes. Until then it goes when this goes.
    Beside(NamedTempFile, PathBuf),
    /// What is no file, such as a pipe.
    Stream(File),
}

impl Target {
    /// Makes sure that `path` can be written, and leaves it as it is. A link stays one.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let path = match fs::canonicalize(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => path.to_owned(),
            path => path?,
        };
        let permissions = match File::options().append(true).open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Permissions::from_mode(0o666),
            file => {
                let (file, of) = file.and_then(|file| file.metadata().map(|of| (file, of)))?;
                if !of.is_file() {
                    return Ok(Self::Stream(file));
                }
                of.permissions()
            }
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = Builder::new().prefix(".pktgen-").permissions(permissions).tempfile_in(folder)?;
        Ok(Self::Beside(file, path))
    }

    /// Whether it is a file, or is to become one.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self, Self::Beside(..))
    }

    /// Puts the text in the place of what was there.
    pub(crate) fn replace(self, text: &str) -> io::Result<()> {
        match self {
            Self::Beside(mut file, path) => {
                file.write_all(text.as_bytes())?;
                file.as_file().sync_all()?;
                file.persist(path).map(drop).map_err(|error| error.error)
            }
            Self::Stream(mut file) => file.write_all(text.as_bytes()),
        }
    }
}
