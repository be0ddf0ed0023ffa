#!/bin/sh
# Checks the program and its tests for macOS on arm64 without a Mac: vet, build and link
# with cgo, so that the Objective-C of backend/metal is compiled as on a Mac.
#
# The compiler is zig cc, which contains the C library of macOS. Declarations and link
# stubs in kernels/sim/metal replace Apple's frameworks. The check finds misspelled
# selectors, wrong types and missing symbols. Its binaries must not be run or shipped.
#
# ZIG names the zig command. Without it, pip installs zig once into output/zig (100 MB
# to download).
set -eu
cd "$(dirname "$0")/.."
root=$PWD
go=${GO:-go}
version=0.17.0
say() { echo "check_darwin: $*" >&2; }

if [ -z "${ZIG:-}" ]; then
	home=$root/output/zig/$version
	if [ ! -x "$home/ziglang/zig" ]; then
		say "installing zig $version into output/zig"
		new=$root/output/zig/$version.$$
		trap 'rm -rf "$new"' EXIT
		if ! PIP_ROOT_USER_ACTION=ignore timeout 600 python3 -m pip install --quiet --disable-pip-version-check --no-deps \
			--retries 2 --timeout 20 --only-binary :all: --target "$new" "ziglang==$version" >&2; then
			say "pip could not install ziglang==$version: is a package index within reach? Or set ZIG to the zig command"
			exit 1
		fi
		rm -rf "$home"
		mv "$new" "$home"
	fi
	ZIG=$home/ziglang/zig
fi

out=$(mktemp -d)
trap 'rm -rf "$out" ./-.o' EXIT # go probes the compiler, and zig leaves this file behind

# stub INSTALL-NAME FILE SYMBOLS CLASSES: writes a stub of a macOS library.
stub() {
	mkdir -p "$(dirname "$2")"
	cat >"$2" <<END
--- !tapi-tbd
tbd-version:     4
targets:         [ arm64-macos ]
install-name:    '$1'
exports:
  - targets:         [ arm64-macos ]
    symbols:         [ $3 ]
    objc-classes:    [ $4 ]
...
END
}
# framework NAME VERSION SYMBOLS CLASSES [HEADER]
framework() {
	stub "/System/Library/Frameworks/$1.framework/Versions/$2/$1" "$out/sdk/$1.framework/$1.tbd" "$3" "$4"
	[ -z "${5:-}" ] || { mkdir -p "$out/sdk/$1.framework/Headers" && cp "$5" "$out/sdk/$1.framework/Headers/$1.h"; }
}
# imported LIBRARY: prints the symbols that Go's own packages import from a library.
imported() {
	grep -rh "^//go:cgo_import_dynamic.*/$1\"" "$($go env GOROOT)"/src/crypto/x509/internal/macos "$($go env GOROOT)"/src/runtime/*darwin*.go |
		awk '{ print "_" $3 }' | sort -u | paste -sd, -
}
framework CoreFoundation A "$(imported CoreFoundation)" ''
framework Security A "$(imported Security)" ''
framework CoreGraphics A '_CGMainDisplayID' ''
framework Foundation C '_NSLocalizedDescriptionKey' 'NSString, NSDictionary, NSNumber, NSError, NSArray' kernels/sim/metal/darwin/Foundation.h
framework Metal A '_MTLCreateSystemDefaultDevice, _MTLCopyAllDevices' 'MTLCompileOptions, MTLResidencySetDescriptor' kernels/sim/metal/include/Metal/Metal.h
stub /usr/lib/libobjc.A.dylib "$out/lib/libobjc.tbd" \
	'_objc_msgSend, _objc_alloc, _objc_alloc_init, _objc_autoreleasePoolPush, _objc_autoreleasePoolPop, _objc_retain, _objc_release, _objc_autorelease, _objc_opt_class, _objc_opt_new, _objc_opt_respondsToSelector, __objc_empty_cache' 'NSObject'
cp "$out/lib/libobjc.tbd" "$out/lib/libobjc.A.tbd"
stub /usr/lib/libresolv.9.dylib "$out/lib/libresolv.tbd" '_res_9_nclose, _res_9_ninit, _res_9_nsearch' ''

# A macOS header that zig lacks; client_golang uses it to measure process memory.
mkdir -p "$out/include/mach"
cat >"$out/include/mach/mach_vm.h" <<'END'
#pragma once
#include <mach/mach_types.h>
#include <mach/vm_region.h>
kern_return_t mach_vm_region(vm_map_read_t, mach_vm_address_t *, mach_vm_size_t *, vm_region_flavor_t, vm_region_info_t, mach_msg_type_number_t *, mach_port_t *);
END

cat >"$out/cc" <<END
#!/bin/sh
exec "$ZIG" cc -target aarch64-macos.13.0 "\$@"
END
chmod +x "$out/cc"
export ZIG_GLOBAL_CACHE_DIR="${ZIG_GLOBAL_CACHE_DIR:-$root/output/zig/cache}"
export GOOS=darwin GOARCH=arm64 CGO_ENABLED=1 CC="$out/cc"
export CGO_CFLAGS="-F$out/sdk -I$out/include -Werror=objc-method-access -Werror=incompatible-pointer-types -Werror=int-conversion"
export CGO_LDFLAGS="-F$out/sdk -L$out/lib"

echo 'check_darwin: vet'
$go vet ./...
echo 'check_darwin: the program'
$go build -ldflags '-s -w' -o "$out/lorafuse" ./cmd/lorafuse
echo 'check_darwin: tests of backend/metal'
$go test -c -ldflags '-s -w' -o "$out/metal.test" ./backend/metal
for f in lorafuse metal.test; do
	# Mach-O of 64 bits, for arm64.
	[ "$(od -An -tx4 -N8 "$out/$f" | tr -d ' ')" = feedfacf0100000c ] || { say "$f is no program for macOS on arm64"; exit 1; }
	grep -qa /System/Library/Frameworks/Metal.framework "$out/$f" || { say "$f does not link Metal"; exit 1; }
done

# The check itself must find a fault: a selector that Metal does not have.
sed 's/newCommandQueue\]/newCommandQueues]/' backend/metal/lfmetal.m >"$out/lfmetal.m"
! cmp -s backend/metal/lfmetal.m "$out/lfmetal.m"
# shellcheck disable=SC2086 # words
if (cd "$out" && ./cc $CGO_CFLAGS -fno-objc-arc -I"$root/backend/metal" -fsyntax-only lfmetal.m) 2>"$out/log"; then
	say 'a misspelt selector was not found'
	exit 1
fi
grep -q newCommandQueues "$out/log" || { cat "$out/log" >&2; exit 1; }
echo 'check_darwin: a misspelt selector is refused'
