package main

import (
	"context"
	"strings"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// press presses keys in the focused element.
func (t *tab) press(keys string) { t.do(chromedp.KeyEvent(keys)) }

// enter presses the Enter key. chromedp's own also inserts a character, which a page
// cannot prevent.
func (t *tab) enter() {
	t.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeRawKeyDown, input.DispatchKeyEventTypeKeyUp} {
			_, err := cdp.Call(ctx, target, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kind, Key: "Enter", Code: "Enter", WindowsVirtualKeyCode: 13, NativeVirtualKeyCode: 13})
			if err != nil {
				return err
			}
		}
		return nil
	}))
}

// monitor checks the server statistics on the page.
func monitor(c *checker) error {
	t := c.open("server", desk)
	t.greedy("300")
	t.ask("Write something.")
	t.view("server")
	t.until(`parseFloat(document.querySelector('[aria-label="Tokens written"] .number').textContent) > 0`)
	t.until(`/[KMG]iB/.test(document.querySelector('[aria-label="Memory of the process"] .number').textContent)`)
	t.until(`document.querySelector('[aria-label="Requests waiting"] .number').textContent === '0'`)
	t.until(`document.querySelector('[aria-label="Cache in use"] .number').textContent.endsWith('%')`)
	t.until(`document.querySelector('.spark .line').getAttribute('d').includes('L')`)
	t.says("#model-list", c.adapter)
	t.says("#version", "lorafuse")
	t.named()
	t.fits()
	return t.close(c.pictures)
}

// away checks the page while the server is unreachable.
func away(c *checker) error {
	t := c.open("away", desk, "ERR_INTERNET_DISCONNECTED")
	t.greedy("5")
	t.offline(true)
	t.ask("Is anyone there?")
	t.says(".answer .error", "The server cannot be reached")
	value[bool](t, "dispatchEvent(new Event('focus'))")
	t.says("#notice", "The server cannot be reached")
	t.fits()
	t.offline(false)
	t.until("document.querySelector('#notice').hidden")
	t.ask("Is anyone there?")
	t.answered()
	t.says(".turn:last-of-type .about", "tokens")
	return t.close(c.pictures)
}

func (t *tab) offline(yes bool) {
	t.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, network.EmulateNetworkConditionsByRule, network.EmulateNetworkConditionsByRuleParams{
			MatchedNetworkConditions: []*network.Conditions{{Offline: yes, DownloadThroughput: -1, UploadThroughput: -1}},
		})
		return err
	}))
}

// wrongKey enters a wrong API key and then the right one, which the tab keeps.
func wrongKey(c *checker) error {
	t := c.open("key", phone, "status of 401")
	t.until("document.querySelector('#key-dialog').open && document.activeElement.id === 'key'")
	t.named()
	t.fits()
	t.write("#key", "not-the-key")
	t.press("\r")
	t.says("#key-wrong", "not accepted")
	t.write("#key", c.key)
	t.press("\r")
	t.until("!document.querySelector('#key-dialog').open && document.querySelector('#model-1').options.length > 0")
	t.greedy("5")
	t.ask("Hello")
	t.answered()
	t.says(".about", "tokens")
	t.do(chromedp.Reload())
	t.until("document.querySelector('#model-1').options.length > 0 && !document.querySelector('#key-dialog').open")
	if err := t.close(c.pictures); err != nil {
		return err
	}

	// Without a key the page does not ask again before the next request.
	t = c.open("no-key", desk, "status of 401")
	t.until("document.querySelector('#key-dialog').open")
	t.click("#key-cancel")
	t.says("#notice", "API key")
	t.click("#key-button")
	t.until("document.querySelector('#key-dialog').open")
	t.write("#key", c.key)
	t.press("\r")
	t.until("document.querySelector('#model-1').options.length > 0 && document.querySelector('#notice').hidden")
	return t.close(c.pictures)
}

// continuing checks the page of a model without a chat template.
func continuing(c *checker) error {
	t := c.open("plain", desk)
	t.greedy("20")
	t.says("#mode", "no chat template")
	model := value[string](t, "document.querySelector('#model-1').value")
	const prompt = "func Less(a, b int) bool"
	t.ask(prompt)
	got := t.answered()
	t.fits()
	if t.err != nil {
		return t.close(c.pictures)
	}
	var answer struct{ Choices []struct{ Text string } }
	err := c.post("/v1/completions", map[string]any{"model": model, "prompt": prompt, "temperature": 0, "max_tokens": 20}, &answer)
	if err != nil {
		return err
	}
	if want := answer.Choices[0].Text; got[0] != want {
		t.fail("found %q, expected %q", got[0], want)
	}
	return t.close(c.pictures)
}

// vectors checks the page of an embedding server.
func vectors(c *checker) error {
	t := c.open("vectors", phone, "status of 404")
	t.says("#welcome", "/v1/embeddings")
	t.until("document.querySelector('#prompt').disabled")
	t.fits()
	t.view("jobs")
	t.says("#jobs-absent", "vectors")
	t.view("server")
	t.until(`/[KMG]iB/.test(document.querySelector('[aria-label="Memory of the process"] .number').textContent)`)
	t.until(`document.querySelector('[aria-label="Requests under way"]').checkVisibility()`)
	t.until(`!document.querySelector('[aria-label="Cache in use"]').checkVisibility()`)
	t.fits()
	return t.close(c.pictures)
}

// absent checks the page of a server without training.
func absent(c *checker) error {
	t := c.open("absent", desk, "status of 404")
	t.view("jobs")
	t.says("#jobs-absent", "--train-dir")
	if shown := t.text("#jobs"); strings.Contains(shown, "Start a job") {
		t.fail("there is a form all the same")
	}
	t.fits()
	return t.close(c.pictures)
}
