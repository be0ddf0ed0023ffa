package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// upload fills in the form of a job and submits it.
func (t *tab) upload(file string) {
	t.view("jobs")
	t.until("!document.querySelector('#jobs-present').hidden")
	if !value[bool](t, "document.querySelector('#start').open") {
		t.click("#start summary")
	}
	t.do(chromedp.SetUploadFiles(chromedp.CSS("#train-file"), []string{file}))
}

const status = `document.querySelector('#job h2 .chip')?.textContent`

// job trains an adapter and chats with it.
func job(c *checker) error {
	t := c.open("job", desk)
	t.greedy("10")
	t.upload(c.rows)
	t.says("#train-about", "rows")
	t.do(chromedp.SetUploadFiles(chromedp.CSS("#valid-file"), []string{c.valid}))
	t.write("#suffix", "from-page")
	t.write("#epochs", "3")
	t.write("#batch-size", "4")
	t.write("#rank", "4")
	t.fits()
	t.named()
	t.click("#start-button")
	t.says("#job", "from-page")
	t.until(`document.querySelector('#job .line.train[d*="L"]')`)
	t.says("#job .value", "training loss")
	t.until(status + " === 'done'")
	t.until(`document.querySelector('#job .frame .line.valid')`)
	// The curve shows its values on hover and with the arrow keys.
	value[bool](t, `document.querySelector('#job .frame').focus() ?? true`)
	t.press(kb.ArrowLeft)
	t.until(`document.querySelector('#job .hair') && document.querySelector('#status').textContent.startsWith('Step ')`)
	t.says("#job .facts", "Rank")
	t.named()
	t.fits()
	t.click("#job .actions .primary")
	t.until("!document.querySelector('#chat').hidden")
	t.ask("// package strings\nfunc Len(s string) int\n// ")
	t.answered()
	t.says(".about", "token")
	t.says(".answer h3", "from-page")
	t.do(chromedp.EmulateViewport(phone.width, phone.height))
	t.view("jobs")
	t.fits()
	return t.close(c.pictures)
}

// preferences trains on pairs of answers, starting from the adapter of job.
func preferences(c *checker) error {
	dir, err := os.MkdirTemp("", "check_page")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var rows strings.Builder
	for i := range 24 {
		fmt.Fprintf(&rows, "{\"prompt\": \"func F%d()\", \"chosen\": \" {\\n\\treturn\", \"rejected\": \" error\"}\n", i)
	}
	file := filepath.Join(dir, "pairs.jsonl")
	if err := os.WriteFile(file, []byte(rows.String()), 0o666); err != nil {
		return err
	}
	t := c.open("preferences", desk)
	t.upload(file)
	t.choose("#method", "dpo")
	t.says("#method-about", "rejected")
	t.choose("#origin", "from-page")
	t.write("#suffix", "preferred")
	t.click("#start-button")
	t.says("#job h2", "preferred")
	t.until(status + " === 'done'")
	t.says("#job .facts", "dpo")
	t.says("#job .facts", "from-page")
	t.until("document.querySelector('#job .line.train[d*=\"L\"]')")
	const loss = `parseFloat(/loss ([\d.]+)/.exec(document.querySelector('#job .value').textContent)[1])`
	t.do(chromedp.Focus(chromedp.CSS("#job .frame")), chromedp.KeyEvent(kb.Home))
	t.says("#job .value", "Step 1: training loss")
	first := value[float64](t, loss)
	t.press(kb.End)
	t.says("#job .value", "Step 72: training loss")
	if last := value[float64](t, loss); last > first-0.05 {
		t.fail("the loss goes from %v to %v", first, last)
	}
	return t.close(c.pictures)
}

// cancelled cancels a running job.
func cancelled(c *checker) error {
	t := c.open("cancel", desk)
	t.upload(c.rows)
	t.write("#suffix", "too-long")
	t.write("#epochs", "1000")
	t.click("#start-button")
	t.says("#job h2", "too-long")
	t.click("#job .actions .danger")
	t.says("#job .actions", "Yes, cancel it")
	t.click("#job .actions .danger")
	t.until(status + " === 'cancelled'")
	t.says("#job .events", "cancelled")
	t.says("#job-list", "cancelled")
	return t.close(c.pictures)
}

// wrongRows uploads invalid training data.
func wrongRows(c *checker) error {
	dir, err := os.MkdirTemp("", "check_page")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	broken, other := filepath.Join(dir, "broken.jsonl"), filepath.Join(dir, "other.jsonl")
	for file, text := range map[string]string{broken: "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\"\n", other: "{\"neither\": 1}\n"} {
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			return err
		}
	}
	t := c.open("rows", desk)
	t.upload(broken)
	t.says("#train-about", "Line 2 is not JSON.")
	t.click("#start-button")
	t.until("!document.querySelector('#train-file').checkValidity()")
	t.upload(other)
	t.click("#start-button")
	t.until(status + " === 'failed'")
	t.says("#job .error", "line 1")
	t.fits()
	return t.close(c.pictures)
}
