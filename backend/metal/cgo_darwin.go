//go:build cgo

package metal

/*
#cgo CFLAGS: -fno-objc-arc -Wall -Werror=objc-method-access
#cgo LDFLAGS: -framework Metal -framework Foundation -framework CoreGraphics
*/
import "C"
