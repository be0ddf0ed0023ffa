// Package all registers the backends of this build: the CPU, the null backend, and CUDA or
// Metal if the build includes them.
package all

import (
	_ "github.com/lorafuse/lorafuse/backend/cpu"  // always there
	_ "github.com/lorafuse/lorafuse/backend/null" // plans without hardware
)
