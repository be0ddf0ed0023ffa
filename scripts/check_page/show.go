package main

import (
	"path/filepath"

	"github.com/chromedp/chromedp"
)

// show writes the screenshots of the documentation. The server must have the model of
// examples/godoc; it trains on the rows of that example.
func (c *checker) show(dir string) error {
	t := c.open("show", size{width: 1100, height: 820})
	t.upload(c.rows)
	t.do(chromedp.SetUploadFiles(chromedp.CSS("#valid-file"), []string{c.valid}))
	t.write("#suffix", "godoc")
	t.write("#epochs", "3")
	t.write("#batch-size", "16")
	t.write("#rate", "10")
	t.click("#start-button")
	t.until("document.querySelectorAll('#job .dot.valid').length > 2")
	t.until(status + " === 'done'")
	t.until("document.querySelector('#job .actions .primary')")
	tuned := value[string](t, "document.querySelector('#job h2').firstChild.textContent")
	box := value[[]float64](t, "(() => { const b = document.querySelector('#job .frame').getBoundingClientRect(); return [b.x + 0.6 * b.width, b.y + 0.5 * b.height] })()")
	if t.err == nil {
		t.do(chromedp.MouseEvent("mouseMoved", box[0], box[1]))
	}
	t.picture(filepath.Join(dir, "page-jobs.png"))
	t.view("chat")
	t.greedy("40")
	t.click("#compare")
	t.choose("#model-2", tuned)
	t.ask("// package encoding/json\nfunc (n Number) Float64() (float64, error)\n// ")
	t.answered()
	t.do(chromedp.EmulateViewport(1100, 620))
	t.picture(filepath.Join(dir, "page-chat.png"))
	return t.close(c.pictures)
}
