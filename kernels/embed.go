//go:build cuda

package kernels

import (
	"embed"
	"path"
	"strings"
)

//go:embed cuda/build/*.fatbin
var fatbins embed.FS

// Images gives the fat binaries that this build carries: the name of each file
// of kernels/cuda without its ending, and the bytes for cuModuleLoadData.
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
