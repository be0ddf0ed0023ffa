//go:build unix

package safetensors

import "os"

// syncFolder makes the names in a folder survive a crash of the machine.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
