#!/bin/sh
# Three hospitals as three processes on this machine, over mutual TLS. Usage: run.sh FOLDER
set -eu
here=$(dirname "$0")
folder=${1:-hospitals}
[ -d "$folder" ] || python "$here/prepare.py" "$folder"
members=""
trap 'kill $members 2>/dev/null || true' EXIT
for name in north south west; do
    sordino party approve --yes --config "$folder/$name/party.toml" "$folder/plan.json"
    sordino party serve --config "$folder/$name/party.toml" &
    members="$members $!"
done
for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
    sordino consortium status --plan "$folder/plan.json" --config "$folder/north/party.toml" && break
    sleep 1
done
sordino consortium run --plan "$folder/plan.json" --config "$folder/north/party.toml"
sordino consortium verify "$folder"/*/state/*/transcript.jsonl
for name in north south west; do
    sordino ledger history "$folder/$name/ledger.sqlite" patients
done
