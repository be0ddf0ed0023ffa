//go:build unix && !linux

package safetensors

// adviceHugePages is not a valid advice: other systems decide about huge pages
// on their own.
const adviceHugePages = -1
