#!/bin/sh
# Build the Debian package of this tree: make deb (docs/decisions/054-debian-package.md).
#
#   packaging/debian/build.sh [--bare] FOLDER
#
# Writes FOLDER/zodb-neo_VERSION_ARCHITECTURE.deb. TOOLS names a Python with this tree, its dependencies,
# pip and setuptools; SYSTEM_PYTHON the Python for which the package is, that of Debian by default. EXTRAS
# are those of setup.cfg; COMPRESSION is a level of gzip. --bare leaves out the libraries of others, so that nothing is downloaded: a test
# looks at the rest.
set -eu

tools=${TOOLS:-.venv/bin/python}
system=${SYSTEM_PYTHON:-/usr/bin/python3}
extras=${EXTRAS:-metrics}
bare=
if [ "${1-}" = --bare ]; then
    bare=yes
    shift
fi
target=${1:?a folder for the package is missing}
tree=$(cd "$(dirname "$0")/../.." && pwd)
recipe=$tree/packaging/debian
home=/usr/lib/neo

fail() {
    echo "build.sh: $*" >&2
    exit 1
}

[ -x "$system" ] || fail "there is no $system, for which the package would be: apt install python3"
command -v dpkg-deb >/dev/null || fail "there is no dpkg-deb: build on Debian"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
stage=$work/stage
umask 022
mkdir -p "$stage$home" "$stage/usr/bin" "$stage/DEBIAN" "$target"

wheel() {  # a copy, because setuptools leaves its traces in the tree
    mkdir "$work/tree"
    tar -C "$tree" --exclude=__pycache__ -c neo neoctl pyspark_neo schema \
        setup.cfg pyproject.toml README.md LICENSE.txt | tar -C "$work/tree" -x
    (cd "$work/tree" && "$tools" -W ignore -c \
        "import setuptools.build_meta as b; b.build_wheel('$work')") >"$work/wheel.log" 2>&1 \
        || { cat "$work/wheel.log" >&2; fail "the wheel cannot be built"; }
}

environment() {  # a virtual environment that knows its later place
    "$system" -m venv --without-pip "$stage$home"
    set -- --quiet --disable-pip-version-check --no-compile --no-warn-script-location --root-user-action ignore
    if [ "$bare" ]; then
        set -- "$@" --no-deps --no-index
    else
        set -- "$@" -c "$tree/tools/constraints.txt"
    fi
    made=$(echo "$work"/zodb_neo-*.whl)
    # Without the tree on the path: pip would take its .egg-info for an installation.
    env -u PYTHONPATH "$tools" -m pip --python "$stage$home/bin/python" install "$@" "zodb-neo[$extras] @ file://$made"
    [ -x "$stage$home/bin/neoctl" ] || fail "pip has not installed the wheel"
    rm -f "$stage$home"/bin/[Aa]ctivate*
    rm -rf "$stage$home/include"
    # Scripts name their Python, and pyvenv.cfg the command that made it.
    grep -rlI "$stage" "$stage$home/bin" "$stage$home/pyvenv.cfg" | while read -r file; do
        sed -i "s,$stage,,g" "$file"
    done
    find "$stage$home" -name direct_url.json -delete
    "$system" -m compileall -q -s "$stage" "$stage$home/lib"
}

commands() {
    for path in "$stage$home"/bin/neo* "$stage$home/bin/transactor"; do
        ln -s "$home/bin/$(basename "$path")" "$stage/usr/bin/"
    done
}

texts() {  # written by the programs themselves
    mkdir -p "$stage/usr/share/man/man1" "$stage/usr/share/bash-completion/completions" \
        "$stage/usr/share/zsh/vendor-completions" "$stage/usr/lib/systemd/system" "$stage/usr/share/doc/zodb-neo"
    "$tools" "$tree/tools/manual_pages.py" "$stage/usr/share/man/man1"
    gzip -9n "$stage"/usr/share/man/man1/*
    "$tools" -m neoctl completion bash >"$stage/usr/share/bash-completion/completions/neoctl"
    "$tools" -m neoctl completion zsh >"$stage/usr/share/zsh/vendor-completions/_neoctl"
    "$tools" -c "$write_units" "$stage/usr/lib/systemd/system"
    cp "$tree/LICENSE.txt" "$stage/usr/share/doc/zodb-neo/copyright"
    gzip -9nc "$tree/CHANGELOG.md" >"$stage/usr/share/doc/zodb-neo/changelog.gz"
}

control() {
    minor=$("$system" -c 'import sys; print(sys.version_info[1])')
    libraries="libc6, libgcc-s1"
    case ",$extras," in *,mariadb,*) libraries="$libraries, libmariadb3" ;; esac
    sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@LIBRARIES@/$libraries/" \
        -e "s/@MINOR@/$minor/" -e "s/@NEXT@/$((minor + 1))/" \
        -e "s/@SIZE@/$(du -ks "$stage" | cut -f1)/" "$recipe/control" >"$stage/DEBIAN/control"
    for script in postinst prerm postrm; do
        install -m 755 "$recipe/$script" "$stage/DEBIAN/$script"
    done
    (cd "$stage" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$stage/DEBIAN/md5sums"
}

write_units='
import pathlib, sys
from neoctl.layout import PACKAGE_PROGRAMS
from neoctl.units import units
for name, text in units(PACKAGE_PROGRAMS).items():
    pathlib.Path(sys.argv[1], name).write_text(text)
'
export PYTHONPATH="$tree"
version=$("$tools" -c 'import neo; print(neo.__version__)')
architecture=$(dpkg --print-architecture)
wheel
environment
commands
texts
control
package=$target/zodb-neo_${version}_$architecture.deb
dpkg-deb --root-owner-group -Zgzip -z"${COMPRESSION:-6}" --build "$stage" "$package" >/dev/null
echo "$package"
