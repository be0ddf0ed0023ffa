//go:build cuda && linux

package driver

/*
#include <cuda.h>

// 12.x headers have two functions, and 13.x one by both names: the second gives
// the UUID of an instance where the device is one (MIG).
static CUresult device_uuid(CUuuid *u, int device) { return cuDeviceGetUuid_v2(u, device); }
*/
import "C"

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"
)

// UUID returns the UUID of a device or MIG instance in the format of NVML, without the prefix GPU- or MIG-.
func UUID(d cu.Device) (string, error) {
	var raw C.CUuuid
	if err := check(C.device_uuid(&raw, C.int(d))); err != nil {
		return "", err
	}
	b := *(*[16]byte)(unsafe.Pointer(&raw))
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), nil
}
