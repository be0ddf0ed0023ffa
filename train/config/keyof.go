package config

import "slices"

// KeyOf returns the key that has a name here or in another trainer, or an empty string if there is none or if there are
// several.
func KeyOf(name string) string {
	found := ""
	for _, k := range table() {
		_, leaf := split(k.Path)
		if k.Section || leaf != name && !slices.Contains(k.also, name) {
			continue
		}
		if found != "" && leaf == name {
			return ""
		}
		if found == "" {
			found = k.Path
		}
	}
	return found
}
