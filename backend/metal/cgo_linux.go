//go:build cgo && metal && metalfake

package metal

/*
#cgo CFLAGS: -fblocks -Wall -Werror=objc-method-access
#cgo CFLAGS: -I${SRCDIR}/../../kernels/sim/metal/include -I/usr/include/GNUstep -I/usr/lib/gcc/x86_64-linux-gnu/12/include
#cgo CFLAGS: -fexceptions -D_NATIVE_OBJC_EXCEPTIONS -DGNUSTEP -DGNUSTEP_BASE_LIBRARY=1 -DGNU_RUNTIME=1
#cgo LDFLAGS: -L${SRCDIR}/../../kernels/sim/build -lmetal_sim -Wl,-rpath,${SRCDIR}/../../kernels/sim/build
#cgo LDFLAGS: -L/usr/lib/gcc/x86_64-linux-gnu/12 -lBlocksRuntime -lgnustep-base -lobjc
*/
import "C"
