//go:build cuda && linux

package all

import _ "github.com/lorafuse/lorafuse/backend/cuda" // NVIDIA GPUs, where there is a driver
