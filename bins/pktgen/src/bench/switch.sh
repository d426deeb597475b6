# Open vSwitch with DPDK in the folder $1, whose program is $2, and whose poller has the lcores of the mask $3: a bridge of two ports, which
# connect to a.sock and b.sock there. Says "ready", and again whenever a line of its input has become the only flow of the bridge. The end of its input is its end.
set -e
cd "$1"
export OVS_RUNDIR="$1" OVS_LOGDIR="$1" OVS_DBDIR="$1" OVS_SYSCONFDIR="$1" RUNTIME_DIRECTORY="$1"
database=unix:$1/db.sock
set_up() { ovs-vsctl --db="$database" --timeout=60 "$@" >>log 2>&1; }
ovsdb-tool create conf.db /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server conf.db --remote="punix:$1/db.sock" --unixctl="$1/db.ctl" >>log 2>&1 </dev/null &
database_server=$!
trap 'kill $database_server $switch 2>/dev/null || :; wait' EXIT
trap 'exit 1' INT TERM
tries=0
until [ -S db.sock ]; do
    tries=$((tries + 1))
    [ $tries -lt 1000 ]
    sleep 0.01
done
set_up --no-wait init -- set Open_vSwitch . other_config:dpdk-init=true other_config:per-port-memory=true \
    other_config:dpdk-alloc-mem=512 other_config:pmd-cpu-mask="$3" \
    other_config:dpdk-extra='"--no-pci --no-huge --legacy-mem --no-shconf --no-telemetry"'
"$2" "$database" --unixctl="$1/switch.ctl" >>log 2>&1 </dev/null &
switch=$!
set_up add-br br0 -- set bridge br0 datapath_type=netdev
for port in a:1 b:2; do
    set_up add-port br0 "${port%:*}" -- set interface "${port%:*}" type=dpdkvhostuserclient \
        options:vhost-server-path="$1/${port%:*}.sock" ofport_request="${port#*:}"
done
echo ready
while read -r flows; do
    ovs-ofctl --timeout=60 del-flows "unix:$1/br0.mgmt"
    for flow in $flows; do
        ovs-ofctl --timeout=60 add-flow "unix:$1/br0.mgmt" "$flow"
    done
    echo ready
done
