package main

import (
	"path/filepath"

	"github.com/chromedp/chromedp"
)

// show writes the pictures of the documentation, of a server that has the model of
// examples/godoc and can train it.
func (c *checker) show(dir string) error {
	window := size{width: 1100, height: 760}
	t := c.open("show", window)
	t.greedy("40")
	t.click("#compare")
	t.choose("#model-2", c.adapter)
	t.ask("// package hash/fnv\nfunc New64() hash.Hash64\n// ")
	t.answered()
	t.picture(filepath.Join(dir, "page-chat.png"))
	t.upload(c.rows)
	t.do(chromedp.SetUploadFiles(chromedp.CSS("#valid-file"), []string{c.rows}))
	return t.close(c.pictures)
}
