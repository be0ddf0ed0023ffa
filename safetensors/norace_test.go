//go:build !race

package safetensors

const raceDetector = false
