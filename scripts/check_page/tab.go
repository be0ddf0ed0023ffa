package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is the timeout for a condition on a page. Training is slow on a busy machine.
const patience = 5 * time.Minute

// tab is a page under test. After the first error its methods do nothing, and close
// returns the error, so that callers need not check each call.
type tab struct {
	ctx    context.Context
	cancel context.CancelFunc
	url    *url.URL
	name   string
	err    error

	mu       sync.Mutex
	faults   []string // errors reported by the browser
	expected []string // substrings of the faults that a check provokes
}

// size is the size of a window in pixels, and its color scheme.
type size struct {
	width, height int64
	dark          bool
}

var (
	desk  = size{width: 1280, height: 860}
	phone = size{width: 360, height: 740}
)

// open opens a page in a new tab with its own session and storage.
func (c *checker) open(name string, s size, expected ...string) *tab {
	u, err := url.Parse(c.url)
	t := &tab{url: u, name: name, err: err, expected: expected}
	t.ctx, t.cancel = chromedp.NewContext(c.browser, chromedp.WithNewBrowserContext(), chromedp.WithListener(t.listen))
	t.do(chromedp.EmulateViewport(s.width, s.height))
	t.scheme(s.dark)
	t.do(chromedp.Navigate(c.url + "/"))
	return t
}

// scheme sets the system color scheme, light or dark.
func (t *tab) scheme(dark bool) {
	value := "light"
	if dark {
		value = "dark"
	}
	t.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: value}},
		})
		return err
	}))
}

// listen records browser errors as faults.
func (t *tab) listen(event any) {
	fault := ""
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err != nil || u.Scheme != "data" && u.Host != t.url.Host {
			fault = "request to another host: " + e.Request.URL
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == "error" || e.Entry.Level == "warning" {
			fault = fmt.Sprintf("%s: %s (%s)", e.Entry.Level, e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "warning" {
			fault = fmt.Sprintf("console.%s", e.Type)
		}
	case *runtime.EventExceptionThrown:
		fault = "exception: " + e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			fault += " " + x.Description
		}
	}
	if fault == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, part := range t.expected {
		if strings.Contains(fault, part) {
			return
		}
	}
	t.faults = append(t.faults, fault)
}

// close closes the tab and returns its first error or its faults.
func (t *tab) close(pictures string) error {
	if t.err != nil && pictures != "" {
		err := t.err
		t.err = nil
		t.picture(filepath.Join(pictures, "fault-"+t.name+".png"))
		t.err = err
	}
	t.cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil && len(t.faults) > 0 {
		t.err = errors.New(strings.Join(t.faults, "; "))
	}
	return t.err
}

func (t *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	if t.err == nil {
		t.err = chromedp.Do(t.ctx, steps...)
	}
}

// fail records an error, after which the methods of the tab do nothing.
func (t *tab) fail(format string, args ...any) {
	if t.err == nil {
		t.err = fmt.Errorf(format, args...)
	}
}

// value evaluates a script and returns its result.
func value[T any](t *tab, script string) (v T) {
	if t.err == nil {
		if v, t.err = chromedp.Run(t.ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise)); t.err != nil {
			t.err = fmt.Errorf("%s: %w", script, t.err)
		}
	}
	return v
}

// until waits until a script returns true. It does not use chromedp's Poll, which
// compiles functions from text, because the content security policy of the page forbids
// that.
func (t *tab) until(script string) {
	for end := time.Now().Add(patience); t.err == nil; time.Sleep(50 * time.Millisecond) {
		if value[bool](t, "Boolean("+script+")") {
			return
		}
		if time.Now().After(end) {
			t.fail("timeout waiting for %s", script)
		}
	}
}

// text returns the rendered text of an element, or "" if it does not exist.
func (t *tab) text(selector string) string {
	return value[string](t, "document.querySelector("+quoted(selector)+")?.innerText ?? ''")
}

// says waits until an element has a text.
func (t *tab) says(selector, part string) {
	t.until("document.querySelector(" + quoted(selector) + ")?.innerText.includes(" + quoted(part) + ")")
}

func (t *tab) click(selector string) {
	t.do(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// write replaces the contents of a field.
func (t *tab) write(selector, text string) {
	t.until("document.querySelector(" + quoted(selector) + ")?.checkVisibility()")
	value[bool](t, "(() => { const e = document.querySelector("+quoted(selector)+"); e.focus(); e.select(); return true })()")
	t.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, input.InsertText, input.InsertTextParams{Text: text})
		return err
	}))
}

func (t *tab) choose(selector, option string) {
	t.until("[...document.querySelector(" + quoted(selector) + ").options].some((o) => o.value === " + quoted(option) + ")")
	value[chromedp.Void](t, "(() => { const s = document.querySelector("+quoted(selector)+"); s.value = "+quoted(option)+"; s.dispatchEvent(new Event('change', {bubbles: true})) })()")
}

// view opens a section of the page.
func (t *tab) view(name string) {
	t.click(`nav a[href="#` + name + `"]`)
	t.until("!document.getElementById(" + quoted(name) + ").hidden")
}

// ask enters a message and sends it.
func (t *tab) ask(text string) {
	t.write("#prompt", text)
	t.enter()
	t.until(`document.querySelector('.turn:last-of-type .answer')`)
}

// answered waits for the answers to the last message and returns them.
func (t *tab) answered() []string {
	t.until(`[...document.querySelectorAll('.turn:last-of-type .answer')].every((a) => a.getAttribute('aria-busy') === 'false')`)
	return value[[]string](t, `[...document.querySelectorAll('.turn:last-of-type .answer .text')].map((a) => a.textContent)`)
}

// picture saves a screenshot.
func (t *tab) picture(file string) {
	if t.err != nil {
		return
	}
	var png []byte
	if png, t.err = chromedp.Run(t.ctx, chromedp.CaptureScreenshot()); t.err == nil {
		t.err = os.WriteFile(file, png, 0o666)
	}
}

// fits checks that no element is wider than the window and that all text has contrast.
func (t *tab) fits() {
	for _, dark := range []bool{false, true} {
		t.scheme(dark)
		wide := value[[]string](t, "("+wideScript+")()")
		if len(wide) > 0 {
			t.fail("wider than the window: %s", strings.Join(wide, ", "))
		}
		faint := value[[]string](t, "("+faintScript+")()")
		if len(faint) > 0 {
			t.fail("too little contrast, dark %v: %s", dark, strings.Join(faint, ", "))
		}
	}
	t.scheme(false)
}

// named checks that every control has an accessible name.
func (t *tab) named() {
	if t.err != nil {
		return
	}
	tree, err := chromedp.Run(t.ctx, func(ctx context.Context, target *chromedp.Target) (accessibility.GetFullAXTreeResult, error) {
		return cdp.Call(ctx, target, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	})
	if err != nil {
		t.err = err
		return
	}
	found := 0
	for _, n := range tree.Nodes {
		if n.Ignored || n.Role == nil {
			continue
		}
		role := plain(n.Role)
		switch role {
		case "button", "link", "textbox", "combobox", "switch", "spinbutton", "progressbar", "dialog", "img", "figure", "navigation", "group":
			if found++; plain(n.Name) == "" && role != "figure" && role != "group" {
				t.fail("a %s has no name", role)
			}
		}
	}
	if found < 3 {
		t.fail("only %d parts can be operated", found)
	}
}

func plain(v *accessibility.Value) string {
	var s string
	if v != nil {
		_ = json.Unmarshal(v.Value, &s) // the name of a non-string value is empty
	}
	return s
}

func quoted(s string) string {
	b, _ := json.Marshal(s) // strings always marshal
	return string(b)
}
