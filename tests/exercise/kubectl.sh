#!/usr/bin/env bash
# The exercise of tests/clients with kubectl: create, watch, patch, apply, logs, exec, delete.
# usage: KUBECONFIG=FILE kubectl.sh KUBECTL NAMESPACE
set -euo pipefail
binary=$1 namespace=$2
scratch=$(mktemp -d)
watcher=
finish() {
  [ -z "$watcher" ] || kill "$watcher" 2>/dev/null || true
  rm -rf "$scratch"
}
trap finish EXIT

kubectl() { "$binary" --request-timeout=100s -n "$namespace" "$@"; }
fail() { echo "not as expected: $*" >&2; exit 1; }
# seen PATTERN: waits until a line of the watch matches.
seen() {
  for _ in $(seq 1000); do
    grep -qE "$1" "$scratch/watch" && return
    sleep 0.1
  done
  fail "the watch does not show $1: $(cat "$scratch/watch")"
}

kubectl create namespace "$namespace"
"$binary" -n "$namespace" get pods --watch --output-watch-events --no-headers > "$scratch/watch" &
watcher=$!
kubectl create -f - <<MANIFEST
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "exercise"}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [
  {"name": "main", "image": "busybox", "command": ["sh", "-c", "echo hello from \$HOSTNAME; sleep 600"]}]}}
MANIFEST
echo "ok: create"

kubectl wait --for=condition=Ready pod/exercise --timeout=100s
seen '^ADDED +exercise'
seen '^MODIFIED +exercise +1/1 +Running'
echo "ok: watch"

kubectl patch pod exercise -p '{"metadata": {"labels": {"step": "patched"}}}'
[ "$(kubectl get pods -l step=patched -o name)" = pod/exercise ] || fail "no pod has the label"
echo "ok: patch"

for data in '{"a":"1","b":"1"}' '{"a":"2"}'; do
  echo '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "exercise"}, "data": '"$data"'}' > "$scratch/map.json"
  kubectl apply -f "$scratch/map.json"
  [ "$(kubectl get configmap exercise -o jsonpath='{.data}')" = "$data" ] || fail "apply of $data"
  kubectl apply --server-side --force-conflicts -f "$scratch/map.json"
  [ "$(kubectl get configmap exercise -o jsonpath='{.data}')" = "$data" ] || fail "server-side apply of $data"
done
echo "ok: apply"

for _ in $(seq 1000); do
  log=$(kubectl logs exercise)
  [ -z "$log" ] || break
  sleep 0.1
done
[ "$log" = "hello from exercise" ] || fail "the log is $log"
echo "ok: logs"

code=0
echo in | kubectl exec -i exercise -- sh -c 'cat; echo err >&2; exit 3' > "$scratch/out" 2> "$scratch/err" || code=$?
[ "$code" = 3 ] || fail "the exit code is $code: $(cat "$scratch/err")"
[ "$(cat "$scratch/out")" = in ] || fail "$(cat "$scratch/out")"
grep -qx err "$scratch/err" || fail "$(cat "$scratch/err")"
echo "ok: exec"

kubectl delete pod exercise --timeout=100s
seen '^DELETED +exercise'
[ -z "$(kubectl get pods -o name)" ] || fail "the pod is still there"
"$binary" delete namespace "$namespace" --timeout=100s
echo "ok: delete"
echo done
