#!/bin/sh
# Install the Debian packages that `make demo` or `make test` needs and this machine lacks.
#
#   tools/install-debian.sh [--print] make|demo|test [PYTHON]
#
# Nothing is installed when nothing is missing, and no server is ever started: MariaDB comes as
# `mariadb-server-core`, which holds the programs without a service; PostgreSQL, whose package makes a
# server, is told not to, and the service of Prometheus is masked unless it is there. --print names the missing packages instead of installing them.
set -eu

fail() {
    echo "install-debian.sh: $*" >&2
    exit 1
}

has() {
    # /usr/sbin, where Debian keeps mariadbd, is not in the PATH of every user.
    PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1
}

need_python() {
    if has "$python"; then
        check_version
        "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 && return
        [ "$python" = python3 ] || fail "$python cannot make virtual environments (module venv)."
    elif [ "$python" = python3 ]; then
        packages="$packages python3"
    else
        fail "there is no $python here. Name another one: make PYTHON=python3.12"
    fi
    packages="$packages python3-venv"
}

check_version() {
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' && return
    fail "NEO needs Python 3.11 or newer, and $python is $("$python" --version 2>&1)." \
        "Install a newer one and name it: make PYTHON=python3.12"
}

need_compiler() {  # mysqlclient is published as source only
    has gcc || packages="$packages gcc"
    [ -e /usr/include/stdlib.h ] || packages="$packages libc6-dev"
    has pkg-config || packages="$packages pkg-config"
    "$python" -c '
import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))
' >/dev/null 2>&1 || packages="$packages python3-dev"
    pkg-config --exists libmariadb 2>/dev/null \
        || pkg-config --exists mariadb 2>/dev/null \
        || pkg-config --exists mysqlclient 2>/dev/null \
        || packages="$packages libmariadb-dev"
}

need_mariadb() {  # my_print_defaults, which mariadb-install-db calls, is with the client
    { has mariadbd && has mariadb-install-db; } || packages="$packages mariadb-server-core"
    has my_print_defaults || packages="$packages mariadb-client-core"
}

need_postgresql() {  # Debian keeps its programs out of the PATH
    set -- /usr/lib/postgresql/*/bin/initdb
    has initdb || [ -e "$1" ] || packages="$packages postgresql"
}

need_network() {  # ip, for the tests that cut machines off
    has ip || packages="$packages iproute2"
}

need_systemd() {  # no service: its program that reads units, and dpkg-deb
    has systemd-analyze || packages="$packages systemd"
    has dpkg-deb || packages="$packages dpkg"
}

need_java() {  # Spark 4 needs 17; `java -version` says 1.8.0_402 or 17.0.15
    version=$(java -version 2>&1) || version=
    version=${version#*version \"}
    version=${version%%[!0-9]*}
    [ "${version:-0}" -ge 17 ] || packages="$packages default-jre-headless"
}

need_prometheus() {  # with promtool, for the tests of the dashboard and the alerts
    { has prometheus && has promtool; } || packages="$packages prometheus"
}

need_browser() {  # for the tests of the web page
    has chromium || packages="$packages chromium"
    has chromedriver || packages="$packages chromium-driver"
}

print=
if [ "${1-}" = --print ]; then
    print=yes
    shift
fi
purpose=${1-}
python=${2-python3}
packages=
case $purpose in
    make) has make || packages=" make" ;;
    demo) need_python ;;
    test) need_python; need_compiler; need_mariadb; need_postgresql; need_network; need_systemd; need_java
        need_prometheus; need_browser ;;
    *) fail "usage: install-debian.sh [--print] make|demo|test [PYTHON]" ;;
esac
packages=${packages# }

if [ -n "$print" ]; then
    [ -z "$packages" ] || echo "$packages"
    exit 0
fi
[ -n "$packages" ] || exit 0
has apt-get || fail "these are missing: $packages. Install them (the names are those of Debian)."
as_root=
if [ "$(id -u)" != 0 ]; then
    has sudo || fail "these are missing: $packages. Run as root, or install sudo, or install them."
    as_root=sudo
fi
echo "Installing from Debian: $packages"
$as_root apt-get update -q
case " $packages " in
    *" postgresql "*)
        # shellcheck disable=SC2016  # for the shell of root
        $as_root sh -c 'mkdir -p "$0" && echo "create_main_cluster = false" > "$0/zodb-neo.conf"' \
            /etc/postgresql-common/createcluster.d ;;
esac
case " $packages " in
    *" prometheus "*)  # neither now nor at the next start: `systemctl unmask prometheus` takes it back
        $as_root sh -c 'mkdir -p "$0" && [ -e "$0/$1" ] || ln -s /dev/null "$0/$1"' \
            /etc/systemd/system prometheus.service
        # Where another program than systemd starts services, its rule is asked; for this installation only.
        policy=/usr/sbin/policy-rc.d
        if [ ! -e $policy ]; then
            trap '$as_root rm -f $policy' EXIT
            # shellcheck disable=SC2016  # for the shell of root
            $as_root sh -c 'printf "#!/bin/sh\nexit 101\n" > "$0" && chmod 755 "$0"' $policy
        fi ;;
esac
# shellcheck disable=SC2086  # a list of words
$as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends $packages
# A Python that was just installed may be too old as well.
[ "$purpose" = make ] || check_version
