package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/chromedp/chromedp"
)

// post sends a request to the server directly, without the page.
func (c *checker) post(path string, body, answer any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequest("POST", c.url+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+c.key)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if b, err = io.ReadAll(response.Body); err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, b)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(b, answer)
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// expect returns the answer of the server's API, to compare it with the page.
func (c *checker) expect(model string, tokens int, messages ...message) (string, error) {
	var answer struct {
		Choices []struct{ Message message }
	}
	err := c.post("/v1/chat/completions", map[string]any{"model": model, "messages": messages, "temperature": 0, "max_tokens": tokens}, &answer)
	if err != nil {
		return "", err
	}
	return answer.Choices[0].Message.Content, nil
}

func units(c *checker) error {
	t := c.open("units", desk)
	faults := value[[]string](t, "("+strings.TrimSuffix(strings.TrimSpace(unitsScript[strings.Index(unitsScript, "async"):]), ";")+")(new URL('.', document.querySelector('script[type=module]').src).href)")
	if len(faults) > 0 {
		t.fail("%s", strings.Join(faults[:min(len(faults), 5)], "; "))
	}
	return t.close(c.pictures)
}

// greedy selects greedy decoding, whose answers are deterministic.
func (t *tab) greedy(tokens string) {
	t.until(`document.querySelector('#model-1').options.length > 0`)
	if !value[bool](t, "document.querySelector('#settings').open") {
		t.click("#settings summary")
	}
	t.write("#temperature", "0")
	t.write("#max-tokens", tokens)
	if value[bool](t, "document.querySelector('#markdown').checked") {
		t.click("#markdown") // the text as it is, to compare it
	}
}

func chat(c *checker) error {
	t := c.open("chat", desk)
	t.greedy("60")
	base := value[string](t, "document.querySelector('#model-1').value")
	t.says("#welcome", base)
	const hostile = `Größe 日本 🙂 <img src=x onerror=alert(1)> <b>bold</b>`
	t.ask(hostile)
	got := t.answered()
	t.says(".turn:last-of-type .about", "tokens")
	if found := value[int](t, "document.querySelectorAll('#log img, #log b').length"); found > 0 {
		t.fail("text is read as HTML")
	}
	if said := t.text(".turn:last-of-type .user .text"); said != hostile {
		t.fail("the message is shown as %q", said)
	}
	if t.err != nil {
		return t.close(c.pictures)
	}
	want, err := c.expect(base, 60, message{"user", hostile})
	if err != nil {
		return err
	}
	if len(got) != 1 || got[0] != want {
		t.fail("found %q, expected %q", got, want)
	}
	// The earlier messages are sent too.
	t.ask("And then?")
	got = t.answered()
	again, err := c.expect(base, 60, message{"user", hostile}, message{"assistant", want}, message{"user", "And then?"})
	if err != nil {
		return err
	}
	if t.err == nil && got[0] != again {
		t.fail("with what was said before: found %q, expected %q", got, again)
	}
	t.named()
	t.fits()
	t.click("#clear")
	t.until("document.querySelectorAll('.turn').length === 0 && !document.querySelector('#welcome').hidden")
	return t.close(c.pictures)
}

// reload loads the page anew.
func (t *tab) reload() {
	t.do(chromedp.Reload())
	t.until("document.querySelector('#model-1').options.length > 0")
}

// markdown checks that answers are formatted, and that hostile ones run and load nothing.
func markdown(c *checker) error {
	t := c.open("markdown", desk)
	t.until("document.querySelector('#model-1').options.length > 0")
	const fence = "```"
	answer := "# Title\n\nA **bold** `word` &lt;b&gt;.\n\n" + fence + "go\nx := 1\n" + fence + "\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n- one\n- [two](https://example.com/)\n\n" +
		"<script>window.ran = 1</script>\n\n<img src=x onerror='window.ran = 2'>\n\n<svg onload=window.ran=3>\n\n[a](javascript:window.ran=4) [b](data:text/html,x) [c](&#106;avascript:window.ran=5)\n\n" +
		"![picture](https://example.com/x.png) <javascript:window.ran=6>\n\n" + fence + "\" onload=window.ran=7\n<b>\n" + fence + "\n" + strings.Repeat("> ", 3000) + "deep"
	chat, err := json.Marshal([]map[string]any{{"id": "1", "system": "", "turns": []map[string]any{{"text": "<b>Hi</b>", "answers": []map[string]any{{"model": "m", "text": answer[:len(answer)-6004], "about": "x"}}}, {"text": "deep", "answers": []map[string]any{{"model": "m", "text": answer}}}}}})
	if err != nil {
		return err
	}
	value[bool](t, "(localStorage.setItem('lorafuse.chats', "+quoted(string(chat))+"), localStorage.setItem('lorafuse.chat', '1'), true)")
	t.reload()
	t.until("document.querySelectorAll('.turn').length === 2")
	const first = ".turn .answer .text" // querySelector takes the first turn
	t.until("document.querySelector('" + first + " h4')?.textContent === 'Title'")
	t.until("document.querySelector('" + first + " strong')?.textContent === 'bold'")
	t.until("document.querySelector('" + first + " .code code').textContent === 'x := 1' && document.querySelector('" + first + " .code .link').textContent === 'Copy'")
	t.until("document.querySelectorAll('" + first + " td').length === 2 && document.querySelectorAll('" + first + " li').length === 2")
	t.says(first, "<b>.")
	t.says(first, "<script>window.ran = 1</script>")
	t.until("!document.querySelector('#log img, #log script, #log svg, #log iframe, #log b, #log [onerror], #log [onload]')")
	t.until("[...document.querySelectorAll('#log a')].every((a) => a.href.startsWith('https://example.com/'))")
	t.until("window.ran === undefined")
	t.named()
	t.fits()
	return t.close(c.pictures)
}

// history checks that a reload keeps the chat, and that messages are edited and asked again.
func history(c *checker) error {
	t := c.open("history", desk)
	t.greedy("12")
	t.ask("First.")
	first := t.answered()
	t.ask("Second.")
	second := t.answered()
	t.reload()
	t.until("document.querySelectorAll('.turn').length === 2")
	t.click("#markdown")
	const texts = "[...document.querySelectorAll('.answer .text')].map((x) => x.textContent)"
	if got := value[[]string](t, texts); t.err == nil && (got[0] != first[0] || got[1] != second[0]) {
		t.fail("after a reload: found %q, expected %q and %q", got, first, second)
	}
	t.write("#temperature", "0")
	t.write("#max-tokens", "12")
	t.click(".turn:last-of-type .again")
	if again := t.answered(); t.err == nil && again[0] != second[0] {
		t.fail("asked again: found %q, expected %q", again, second)
	}
	t.until("document.querySelectorAll('.turn').length === 2")
	t.click(".turn .edit")
	t.until("document.querySelector('#prompt').value === 'First.' && !document.querySelector('#editing').hidden")
	t.ask("Changed.")
	t.answered()
	t.until("document.querySelectorAll('.turn').length === 1 && document.querySelector('.user .text').textContent === 'Changed.'")
	t.click("#clear")
	t.until("document.querySelectorAll('.turn').length === 0 && document.querySelector('#history').options.length === 2")
	t.reload()
	t.until("document.querySelectorAll('.turn').length === 0")
	value[chromedp.Void](t, "(() => { const s = document.querySelector('#history'); s.selectedIndex = 1; s.dispatchEvent(new Event('change')) })()")
	t.until("document.querySelectorAll('.turn').length === 1")
	t.click("#forget")
	t.until("document.querySelectorAll('.turn').length === 0 && document.querySelector('#past').hidden")
	return t.close(c.pictures)
}

func stop(c *checker) error {
	t := c.open("stop", desk)
	t.greedy("20000")
	t.ask("Write very much.")
	const text = `document.querySelector('.answer .text').textContent.length`
	t.until(text + " > 0")
	early := value[int](t, text)
	t.until(text + " > " + fmt.Sprint(early)) // it is streamed
	t.click("#stop")
	t.says(".answer .about", "stopped")
	t.until("!document.querySelector('#send').hidden && document.activeElement.id === 'prompt'")
	t.until(`fetch('metrics').then((r) => r.text()).then((m) => /num_requests_running\{[^}]*\} 0\n/.test(m))`)
	// The chat continues from that message.
	t.write("#max-tokens", "5")
	t.ask("Once more.")
	t.answered()
	t.says(".turn:last-of-type .about", "tokens")
	return t.close(c.pictures)
}

func compare(c *checker) error {
	t := c.open("compare", desk)
	t.greedy("2000")
	base := value[string](t, "document.querySelector('#model-1').value")
	t.click("#compare")
	t.choose("#model-2", c.adapter)
	value[bool](t, `new MutationObserver(() => {
		const writing = [...document.querySelectorAll('.answer[aria-busy=true] .text')].filter((x) => x.textContent !== '');
		if (writing.length === 2) window.both = true;
	}).observe(document.querySelector('#log'), {subtree: true, childList: true, characterData: true}) ?? true`)
	t.ask("Say it.")
	got := t.answered()
	t.until("window.both") // both were streamed concurrently
	if t.err != nil {
		return t.close(c.pictures)
	}
	for i, model := range []string{base, c.adapter} {
		want, err := c.expect(model, 2000, message{"user", "Say it."})
		if err != nil {
			return err
		}
		if got[i] != want {
			t.fail("%s: found %q, expected %q", model, got[i], want)
		}
	}
	if got[0] == got[1] {
		t.fail("both answers are the same: %q", got[0])
	}
	const left = `[...document.querySelectorAll('.answer')].map((a) => Math.round(a.getBoundingClientRect().left))`
	if x := value[[]int](t, left); len(x) != 2 || x[0] >= x[1] {
		t.fail("the answers are not beside each other: %v", x)
	}
	t.named()
	t.fits()
	return t.close(c.pictures)
}

func refusals(c *checker) error {
	t := c.open("errors", desk, "the server responded with a status of 400", "the server responded with a status of 404")
	t.greedy("1000000")
	t.ask("Too much.")
	t.says(".answer .error", "tokens")
	t.until("!document.querySelector('#send').hidden")
	t.write("#max-tokens", "5")
	value[bool](t, `document.querySelector('#model-1').append(new Option('gone', 'gone')) ?? true`)
	t.choose("#model-1", "gone")
	t.ask("Hello?")
	t.says(".turn:last-of-type .answer .error", `The model "gone" does not exist`)
	return t.close(c.pictures)
}

// keyboard operates the page without a pointer.
func keyboard(c *checker) error {
	t := c.open("keyboard", desk)
	t.until(`document.activeElement.id === 'prompt'`)
	t.press("\t")
	t.until(`document.activeElement.id === 'send'`)
	value[bool](t, "document.querySelector('.skip').focus() ?? true")
	for _, name := range []string{"chat", "jobs", "server"} {
		t.press("\t")
		t.until(`document.activeElement.hash === '#` + name + `'`)
	}
	t.press("\r")
	t.until(`!document.querySelector('#server').hidden && document.querySelector('nav a[aria-current]').hash === '#server'`)
	value[bool](t, "document.querySelector('.skip').focus() ?? true")
	t.press("\r")
	t.until(`document.activeElement.id === 'main' && !document.querySelector('#server').hidden`)
	return t.close(c.pictures)
}

func narrow(c *checker) error {
	t := c.open("phone", phone, "status of 404")
	t.greedy("40")
	t.click("#compare")
	t.choose("#model-2", c.adapter)
	t.ask("A_very_long_word_that_has_no_place_to_be_broken_and_goes_on_and_on_and_on")
	t.answered()
	t.fits()
	const boxes = `[...document.querySelectorAll('.answer')].map((a) => Math.round(a.getBoundingClientRect().left))`
	if x := value[[]int](t, boxes); len(x) != 2 || x[0] != x[1] {
		t.fail("the answers are not one below the other: %v", x)
	}
	t.until(`document.querySelector('#prompt').getBoundingClientRect().bottom <= innerHeight`)
	for _, name := range []string{"jobs", "server"} {
		t.view(name)
		t.fits()
		t.named()
	}
	return t.close(c.pictures)
}
