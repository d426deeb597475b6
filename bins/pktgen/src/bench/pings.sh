# Pings by the kernel and past it, from the network namespace that this runs in: $1 is pktgen. Another namespace answers the kernel, over
# a veth pair; this one answers the port, over a TAP interface.
set -e
unshare --net sleep 600 &
peer=$!
trap 'kill $peer' EXIT
trap 'exit 1' INT TERM
tries=0
until [ "$(readlink /proc/$peer/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do
    tries=$((tries + 1))
    [ $tries -lt 6000 ] || { echo "the namespace of the peer is not there after 60 s" >&2; exit 1; }
    sleep 0.01
done
ip link add rwkernel type veth peer name rwpeer netns $peer
nsenter --net --target $peer ip address add 198.18.1.1/24 dev rwpeer
nsenter --net --target $peer ip link set rwpeer up
ip tuntap add rwport mode tap
ip address add 198.18.1.2/24 dev rwkernel
ip address add 198.18.2.1/24 dev rwport
ip link set rwkernel up
ip link set rwport up
"$1" ping 'soft:a?wire=tap:rwport' 198.18.2.1 --source 198.18.2.2/24 --kernel=198.18.1.1 --count 100 --interval 10ms --timeout 10s --json --quiet
