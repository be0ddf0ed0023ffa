//go:build cuda

package kernels

import (
	"embed"
	"path"
	"strings"
)

//go:embed cuda/build/*.fatbin
var fatbins embed.FS

// Images returns the fat binaries embedded in this build: for each file of kernels/cuda
// and kernels/shared, named without its extension, the bytes for cuModuleLoadData.
func Images() map[string][]byte {
	entries, err := fatbins.ReadDir("cuda/build")
	if err != nil {
		panic(err) // the folder is part of the program
	}
	images := make(map[string][]byte, len(entries))
	for _, e := range entries {
		raw, err := fatbins.ReadFile(path.Join("cuda/build", e.Name()))
		if err != nil {
			panic(err)
		}
		images[strings.TrimSuffix(e.Name(), ".fatbin")] = raw
	}
	return images
}
