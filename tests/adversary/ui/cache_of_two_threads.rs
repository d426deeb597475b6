//! E0499: cache
//! A cache has no lock, so one thread has it.
fn main() {
    let pool = mempool::Pool::new(&mempool::PoolConfig::default()).unwrap();
    let mut cache = pool.cache();
    std::thread::scope(|scope| {
        scope.spawn(|| cache.alloc());
        scope.spawn(|| cache.alloc());
    });
}
