//go:build race

package safetensors

const raceDetector = true
