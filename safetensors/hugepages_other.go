//go:build unix && !linux

package safetensors

// adviceHugePages is no advice: other systems decide alone.
const adviceHugePages = -1
