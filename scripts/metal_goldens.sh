#!/bin/sh
# Runs the goldens of scripts/goldens.sh on a Metal device; without a Mac that is the
# fake one. Its family and language version select tiers and bfloat16 forms: family 9
# has simdgroups and bfloat, family 5 has neither.
#   scripts/metal_goldens.sh                     some of each kind, and few of the plain tier
#   scripts/metal_goldens.sh few                 few, in both tiers
#   LORAFUSE_LONG=1 scripts/metal_goldens.sh     all, and some in every tier and form,
#                                                in every order of threads
set -eu
cd "$(dirname "$0")/.."
# On a Mac, where builds need no tag, LORAFUSE_METAL_TAGS is empty.
tags=${LORAFUSE_METAL_TAGS-metal metalfake}
[ -z "$tags" ] || export CC="${CC:-clang-19}" CXX="${CXX:-clang++-19}"
export CGO_ENABLED=1 LORAFUSE_TEST_BACKEND=metal
. scripts/goldens.sh
if [ "${LORAFUSE_LONG:-}" != 1 ]; then
	case ${1:-} in
	few) few ;;
	*) some ;;
	esac
	export LFSIM_METAL_FAMILY=5 LORAFUSE_METAL_TIER=plain
	few
	exit 0
fi
all
for order in forward reverse random; do
	for device in '9 4.0' '9 3.0' '6 4.0' '5 4.0'; do # with and without simdgroups, with and without bfloat
		[ "$order $device" = 'forward 9 4.0' ] && continue # already covered above
		export LFSIM_ORDER=$order LFSIM_SEED=7 LFSIM_METAL_FAMILY="${device% *}" LFSIM_METAL_LANGUAGE="${device#* }"
		some
	done
done
