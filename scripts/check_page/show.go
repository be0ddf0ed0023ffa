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
	t.ask("// package encoding/json\nfunc (n Number) Float64() (float64, error)\n// ")
	t.answered()
	t.ask("// package net\nfunc (ip IP) IsLoopback() bool\n// ")
	t.answered()
	t.picture(filepath.Join(dir, "page-chat.png"))
	t.view("jobs")
	t.until("document.querySelector('#job .line.valid')")
	t.picture(filepath.Join(dir, "page-jobs.png"))
	t.view("server")
	t.picture(filepath.Join(dir, "page-server.png"))
	t.scheme(true)
	t.picture(filepath.Join(dir, "page-server-dark.png"))
	t.view("jobs")
	t.picture(filepath.Join(dir, "page-jobs-dark.png"))
	t.do(chromedp.EmulateViewport(phone.width, phone.height))
	t.picture(filepath.Join(dir, "page-jobs-phone.png"))
	t.view("chat")
	t.picture(filepath.Join(dir, "page-chat-phone.png"))
	t.view("server")
	t.picture(filepath.Join(dir, "page-server-phone.png"))
	return t.close(c.pictures)
}
