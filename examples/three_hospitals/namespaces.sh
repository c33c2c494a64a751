#!/bin/sh
# Three hospitals in three network namespaces with latency and loss between them, from keys to a model:
# a charter that all sign, a plan that all approve, a kill -9 of a hospital in the middle of the run, and a
# certificate that is exchanged for another. Needs root (ip netns, tc netem). Usage: namespaces.sh FOLDER
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir "$1" && cd "$1"
delay=${DELAY:-0.02} loss=${LOSS:-0.005} wire=""
names="north south west"
say() { echo "== $*"; }
inside() { name=$1; shift; ip netns exec "sordino-$name" "$@"; }
clean() {
    for name in $names; do
        [ -f "$name/daemon.pid" ] && env kill -s TERM -- "-$(cat "$name/daemon.pid")" 2>/dev/null || true
        ip netns del "sordino-$name" 2>/dev/null || true
    done
    [ -z "$wire" ] || kill "$wire"
    ip link del sordino-bridge 2>/dev/null || true
}
trap clean EXIT

say "three namespaces, $delay of delay and $loss of loss each way"
for name in $names; do ip netns add "sordino-$name"; done
if inside north tc qdisc add dev lo root netem delay 1ms 2>/dev/null; then
    inside north tc qdisc del dev lo root
    ip link add sordino-bridge type bridge
    ip link set sordino-bridge up
    number=1
    for name in $names; do
        ip link add "so-$name" type veth peer name eth0 netns "sordino-$name"
        ip link set "so-$name" master sordino-bridge up
        inside "$name" ip address add "10.77.0.$number/24" dev eth0
        inside "$name" ip link set eth0 up
        inside "$name" ip link set lo up
        inside "$name" tc qdisc add dev eth0 root netem delay "${delay}s" loss "$(python -c "print(100 * $loss)")%"
        number=$((number + 1))
    done
else
    say "this kernel has no netem: a process carries the packets"
    python "$here/slow_wire.py" "$delay" "$loss" sordino-north sordino-south sordino-west > wire.log &
    wire=$!
    until grep -q ready wire.log; do sleep 0.2; done
fi
inside north ping -c 3 -q 10.77.0.2 2>/dev/null | tail -2 || true

say "each hospital makes its key, its ledger and its settings"
number=1
for name in $names; do
    sordino party init "$name" --name "$name" --epsilon 3 --delta 1e-5 --control "10.77.0.$number:26500"
    others=$(echo "$names" | sed "s/$name//" | awk '{print "\"" $1 "\", \"" $2 "\""}')
    sed -i "s/trusted = \[\]/trusted = [$others]/; s/^\[approval\]/[limits]\nmessage = 5\npatience = 120\n\n[approval]/" "$name/party.toml"
    sed -i "s/^state = /health = \"127.0.0.1:9464\"\nstate = /" "$name/party.toml"
    python -c "import sys; sys.path.insert(0, '$here'); from prepare import make_records; from pathlib import Path
make_records(Path('$name/records.npz'), 2000, 20, seed=$number)"
    number=$((number + 1))
done

charter() { # VERSION CERTIFICATES-OF-WEST
    cat > charter.toml <<TEXT
consortium = "three hospitals"
expires = 2999-12-31
threshold = 1
estimators = ["SparseLogisticRegression"]
max_epsilon = 1.0
max_delta = 1e-5
ranges = { max_iter = [1, 100] }
members = [
  { name = "north", certificates = ["north/certificate.pem"], roles = ["data", "proposer"], epsilon = 3.0, delta = 1e-5 },
  { name = "south", certificates = ["south/certificate.pem"], epsilon = 3.0, delta = 1e-5 },
  { name = "west", certificates = [$2], epsilon = 3.0, delta = 1e-5 },
]
TEXT
    previous=""
    [ "$1" = 1 ] || previous="--previous charter-$(($1 - 1)).json"
    sordino party charter propose --config charter.toml $previous --output "charter-$1.json" > /dev/null
    for name in $names; do # the file goes from hand to hand
        sordino party charter sign "charter-$1.json" --name "$name" --key "$name/key.pem" $previous --yes | tail -1
    done
    for name in $names; do cp "charter-$1.json" "$name/charter.json"; done
    cp "charter-$1.json" charter.json
}

plan() { # OUTPUT STEPS
    cat > consortium.toml <<TEXT
name = "three hospitals"
charter = "charter.json"
threshold = 1
[budget]
epsilon = 1.0
delta = 1e-6
[task]
estimator = "SparseLogisticRegression"
features = 20
[task.params]
classes = [0, 1]
data_norm = 1.0
solver = "ight"
max_iter = $2
solver_options = { step_size = 4.0 }
TEXT
    number=1
    for name in $names; do
        cat >> consortium.toml <<TEXT
[[members]]
name = "$name"
host = "10.77.0.$number"
port = 26501
control = "10.77.0.$number:26500"
records = 2000
certificate = "$name/certificate.pem"
TEXT
        number=$((number + 1))
    done
    sordino consortium plan --config consortium.toml --output "$1"
    for name in $names; do
        SORDINO_PERSON="board of $name" sordino party approve --yes --config "$name/party.toml" "$1" | tail -1
    done
}

serve() {
    setsid ip netns exec "sordino-$1" sordino party serve --config "$1/party.toml" >> "$1/daemon.log" 2>&1 &
    echo $! > "$1/daemon.pid"
}
wait_for() { # until the daemon of a hospital answers
    for try in $(seq 60); do
        inside "$1" python -c "import urllib.request as u; u.urlopen('http://127.0.0.1:9464/health', timeout=1)" 2>/dev/null && return
        sleep 1
    done
    echo "$1 does not answer"; exit 1
}
stop() { # kill -9: the waiting process and the run that it started, as a power cut does
    env kill -s KILL -- "-$(cat "$1/daemon.pid")"
}

say "a charter that all of them sign, a plan under it that all of them approve"
charter 1 '"west/certificate.pem"'
plan plan.json 12
for name in $names; do serve "$name"; done
for name in $names; do wait_for "$name"; done

say "the run; south is killed in the middle of it and started again"
inside north sordino consortium run --plan plan.json --config north/party.toml --timeout 400 &
coordinator=$!
until [ "$(cat south/state/*/transcript.jsonl 2>/dev/null | grep -c '"kind":"release"')" -ge 3 ]; do sleep 0.2; done
stop south
say "south is dead after $(cat south/state/*/transcript.jsonl | grep -c '"kind":"release"') answers"
sleep 3
serve south
wait $coordinator
sordino consortium verify north/state/*/transcript.jsonl south/state/*/transcript.jsonl west/state/*/transcript.jsonl
inside south python -c "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9464/metrics').read().decode())"

say "west exchanges its certificate: a charter with both, the new key, a charter with the new one"
sordino party csr west --name west
charter 2 '"west/certificate.pem", "west/certificate-2.pem"'
stop west
cp west/key-2.pem west/key.pem && cp west/certificate-2.pem west/certificate.pem
charter 3 '"west/certificate-2.pem"'
stop north; stop south
plan second.json 4
for name in $names; do serve "$name"; done
for name in $names; do wait_for "$name"; done
inside north sordino consortium run --plan second.json --config north/party.toml --timeout 400

say "what each ledger and each chain of decisions says"
for name in $names; do
    sordino ledger history "$name/ledger.sqlite" patients
    sordino party decisions --config "$name/party.toml"
    sordino party commitment --config "$name/party.toml" "$(ls -t "$name"/state/*/transcript.jsonl | head -1)"
done
say "done"
