# Sourced by the scripts beside it: `prepare_environment` makes the virtual environment .venv of this checkout, or
# uses the one that is up to date. Sets $root and $venv. PYTHON names another interpreter than python3.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv

find_python() {
    local candidate
    for candidate in "${PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    echo "Python 3.11 or newer is needed, and ${PYTHON:-python3} is $("${PYTHON:-python3}" --version 2>&1 || true)." >&2
    echo "Install one, or name it: PYTHON=/path/to/python3 $0" >&2
    return 1
}

prepare_environment() {
    local python wanted
    python=$(find_python)
    wanted="$root $("$python" --version) $(cksum <"$root/pyproject.toml")"
    if [[ -x $venv/bin/python && $(cat "$venv/prepared" 2>/dev/null) == "$wanted" ]]; then
        return
    fi
    echo "Preparing $venv (once; a minute or two) ..." >&2
    if ! "$python" -m venv --clear "$venv"; then
        echo "$python cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2
        return 1
    fi
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable "$root[test,demo]" >&2
    echo "$wanted" >"$venv/prepared"
}
