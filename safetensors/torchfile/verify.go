package torchfile

// Verify reads all of a file and compares the checksums of the records of a zip
// archive, which Open, like torch.load, does not. A legacy file has no
// checksums; of it, only what Open checks is checked. It fails with ErrChecksum
// and as Open does.
//
// Files that were saved while torch.serialization.set_crc32_options(False) was
// in force have wrong checksums.
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
