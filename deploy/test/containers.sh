# For the tests that run containers (image, compose, pods), which read this file:
# what they need, and the images that they run. From the root of the tree.

tools=target/ci/deploy

# `need_containers WHAT`: or says that WHAT is not run, and ends.
need_containers() {
  local left="$1 NOT RUN" program
  local here="deploy/test/${0##*/}"
  left_out() {
    echo "$here: $*: $left"
    [ -n "${HEADWATER_DEPLOY_REQUIRED:-}" ] && exit 1
    exit 0
  }
  [ -x "$tools/helm" ] && [ -x "$tools/venv/bin/python" ] || left_out "helm is not there (ci/install-deploy)"
  [ -s "$tools/containers.conf" ] || left_out "ci/install-deploy was not run with --containers"
  for program in podman buildah runc ip; do
    command -v "$program" >/dev/null 2>&1 || left_out "no $program"
  done
  [ "$(id -u)" = 0 ] || left_out "bridged networks need root here"
  export CONTAINERS_CONF="$PWD/$tools/containers.conf"
}

# The programs of the image and those of the tests, static, where HEADWATER_PROGRAMS
# names none; it does from then on.
build_static() {
  [ -z "${HEADWATER_PROGRAMS:-}" ] || return 0
  deploy/build -p headwater-cli -p headwater-writer -p headwater-replica \
    -p headwater-sim -p headwater-s3-double
  HEADWATER_PROGRAMS="target/$(rustc -vV | sed -n 's/^host: //p')/release"
  export HEADWATER_PROGRAMS
}

# localhost/headwater:one; two, the same programs in another image, to be rolled to;
# and headwater-test:one, with the load and the S3 endpoint.
make_images() {
  local work
  build_static
  deploy/image "$HEADWATER_PROGRAMS" localhost/headwater:one generation=1
  buildah bud --quiet --isolation chroot --label generation=2 -t localhost/headwater:two - \
    <<<'FROM localhost/headwater:one' >/dev/null
  work=$(mktemp -d)
  install -m 0755 "$HEADWATER_PROGRAMS"/headwater-load "$HEADWATER_PROGRAMS"/headwater-s3-double "$work"
  strip --strip-debug "$work"/headwater-*
  # On top of the image, for what its libraries are where its programs have some.
  printf 'FROM localhost/headwater:one\nCOPY headwater-* /\n' >"$work/Dockerfile"
  buildah bud --quiet --isolation chroot -t localhost/headwater-test:one "$work" >/dev/null
  rm -rf "$work"
  # A container that does nothing but start: whether this machine lets any run.
  if ! podman run --rm --network none localhost/headwater:one --version >/dev/null; then
    left_out "containers do not run here"
  fi
}
