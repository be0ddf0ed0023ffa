package torchfile

// Verify reads the whole file and compares the checksums of the records of a
// zip archive, which neither Open nor torch.load does. A legacy file has no
// checksums; Verify only performs the checks of Open on it. It fails with
// ErrChecksum and as Open does.
//
// Files saved under torch.serialization.set_crc32_options(False) have wrong
// checksums.
func Verify(path string) error {
	in, err := openInput(path)
	if err != nil {
		return err
	}
	defer in.Close()
	c, err := read(in, in.size)
	if err != nil {
		return withPath(err, path)
	}
	if _, err := c.layout(); err != nil {
		return withPath(err, path)
	}
	if c.archive == nil {
		return nil
	}
	for i := range c.archive.records {
		if err := c.archive.verify(i); err != nil {
			return withPath(err, path)
		}
	}
	return nil
}
