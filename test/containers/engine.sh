#!/usr/bin/env bash
# Runs the tests of this folder with a container engine:
#
#   test/containers/engine.sh go test ./test/containers …
#
# It takes the engine at hand if that has API 1.44 (Docker 25), Compose and buildx. Else, for root on Debian, it fetches Docker 28
# or later from Debian into .cache/engine, installs nothing, starts the engine in a network namespace of the command's own,
# where nothing gets in or out, and stops it when the command has ended.
set -euo pipefail
home=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/.cache/engine

usable() {
  local api
  api=$(docker version --format '{{.Server.APIVersion}}' 2>/dev/null) || return
  [ "$(printf '1.44\n%s\n' "$api" | sort -V | head -n 1)" = 1.44 ] && docker compose version && docker buildx version
}

# fetch FOLDER: the engine and Prometheus from Debian's newest suite, and from this machine's own what they need of it and is not installed.
fetch() {
  local apt=$1/apt mirror options
  mkdir -p "$apt"/state/lists/partial "$apt"/{debs,base}/partial
  apt-get update -qq
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1)
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" >"$apt/sources.list"
  options=(-o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State=$apt/state" -o "Dir::Cache=$apt"
    -o Dir::State::status=/dev/null -o Acquire::Languages=none -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update -qq
  (cd "$apt/debs" && apt-get "${options[@]}" download -q docker.io docker-cli docker-compose docker-buildx containerd prometheus)
  options=(-o "Dir::Cache::archives=$apt/base" -o APT::Sandbox::User=root)
  apt-get "${options[@]}" install -qq -y --download-only --no-install-recommends runc iptables busybox-static
  for deb in "$apt"/debs/*.deb "$apt"/base/*.deb; do dpkg -x "$deb" "$1"; done
  mkdir -p "$1/cli"
  ln -s ../usr/libexec/docker/cli-plugins "$1/cli/cli-plugins"
  # Debian's packages leave the choice of these to their installation.
  [ ! -e "$1/usr/sbin/xtables-nft-multi" ] || for name in iptables ip6tables; do ln -s xtables-nft-multi "$1/usr/sbin/$name"; done
  rm -rf "$apt"
}

if [ "$1" != --inside ]; then
  if usable >/dev/null 2>&1; then exec "$@"; fi
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "No container engine of Docker 25 or later with Compose and buildx answers; one is fetched for root on Debian only." >&2
    exit 1
  fi
  mkdir -p "$home"
  # One at a time: two engines would share the folder. The lock goes with the command.
  exec 9>"$home/lock"
  flock --nonblock 9 || { echo "Waiting for the end of another run with $home." >&2; flock 9; }
  # A folder a version, which gets its name when it is whole.
  folder=$(find "$home" -maxdepth 1 -name 'docker-*' | sort -V | tail -n 1)
  if [ -z "$folder" ]; then
    rm -rf "$home/fetched"
    fetch "$home/fetched"
    folder=$home/docker-$("$home/fetched/usr/sbin/dockerd" --version | sed -E 's/^Docker version ([^,]+),.*/\1/')
    mv "$home/fetched" "$folder"
  fi
  exec unshare --net "$0" --inside "$folder" "$@"
fi

folder=$2
shift 2
export PATH="$folder/usr/bin:$folder/usr/sbin:$folder/bin:$PATH" DOCKER_CONFIG="$folder/cli"
unset DOCKER_CONTEXT
run=$(mktemp -d)
# The reaper of testcontainers is an image; here all containers end with the engine.
export DOCKER_HOST="unix://$run/docker.sock" TESTCONTAINERS_RYUK_DISABLED=true
busybox ip link set lo up
libraries=$(echo "$folder"/usr/lib/*-linux-gnu)
LD_LIBRARY_PATH=$libraries XTABLES_LIBDIR=$libraries/xtables dockerd --data-root "$home/data" --exec-root "$run/exec" --pidfile "$run/pid" \
  --host "$DOCKER_HOST" --exec-opt native.cgroupdriver=cgroupfs >"$home/log" 2>&1 </dev/null 9>&- &
engine=$!
trap 'kill "$engine"; wait "$engine" || true; rm -rf "$run"' EXIT
for _ in $(seq 300); do
  if docker version >/dev/null 2>&1; then break; fi
  kill -0 "$engine" 2>/dev/null || { tail -n 30 "$home/log" >&2; exit 1; }
  sleep 0.2
done
# What a run that was killed has left.
docker ps --all --quiet | xargs -r docker rm --force --volumes >/dev/null
docker volume prune --all --force >/dev/null
# Stand-ins carry the names of real images, so they are for this engine alone.
"$@" -containers.standins
