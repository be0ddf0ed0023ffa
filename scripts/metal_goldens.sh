#!/bin/sh
# Runs the goldens of scripts/goldens.sh on a Metal device; without a Mac that is the
# fake one. Its family and language version select tiers and bfloat16 forms: family 9
# has simdgroups and bfloat, family 5 has neither.
#   scripts/metal_goldens.sh                     some of each kind, and very few in the plain tier
#   scripts/metal_goldens.sh few                 few, and very few in the plain tier
#   LORAFUSE_LONG=1 scripts/metal_goldens.sh     all, and some in each tier and form, in
#                                                other orders of threads
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
	fewest
	exit 0
fi
all # in forward order, with simdgroups and bfloat
# without bfloat, and without simdgroups
while read -r order family language; do
	export LFSIM_ORDER="$order" LFSIM_SEED=7 LFSIM_METAL_FAMILY="$family" LFSIM_METAL_LANGUAGE="$language"
	some
done <<END
reverse 9 3.0
random 6 4.0
reverse 5 4.0
END
