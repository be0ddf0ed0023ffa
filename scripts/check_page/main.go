// Command check_page tests the page of a running `lorafuse serve` in a real Chromium:
// the displayed values, browser errors, and legibility.
//
//	cd scripts/check_page && go run . -url http://127.0.0.1:8000 -kind chat [-key KEY] [-adapter NAME] [-rows FILE] [-pictures DIR]
//
// It is a separate module, so that other builds do not download the browser driver.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/chromedp/chromedp"
)

//go:embed units.js
var unitsScript string

//go:embed look.js
var lookScript string

// The functions of look.js.
var (
	wideScript  = "() => {" + lookScript + "return wide(); }"
	faintScript = "() => {" + lookScript + "return faint(); }"
)

// kinds holds the checks for each kind of server.
var kinds = map[string][]check{
	"chat": {
		{"functions without a page", units}, {"chat", chat}, {"markdown", markdown}, {"history", history}, {"stop", stop}, {"compare", compare}, {"errors", refusals},
		{"keyboard", keyboard}, {"phone", narrow}, {"server", monitor}, {"server away", away}, {"no fine-tuning", absent},
	},
	"key":     {{"key", wrongKey}},
	"plain":   {{"continuing", continuing}},
	"vectors": {{"vectors", vectors}},
	"train":   {{"job", job}, {"preferences", preferences}, {"cancel", cancelled}, {"wrong rows", wrongRows}},
}

// check is a named check of a page.
type check struct {
	name string
	run  func(*checker) error
}

// checker holds a browser and the server under test.
type checker struct {
	browser  context.Context
	url, key string
	adapter  string
	rows     string // a file
	valid    string // another, to validate with
	pictures string // a folder
}

func main() {
	c := &checker{}
	flag.StringVar(&c.url, "url", "", "address of the server")
	kind := flag.String("kind", "chat", "kind of server: chat, plain (no chat template), vectors, key (an API key is required), train")
	flag.StringVar(&c.key, "key", "", "API key")
	flag.StringVar(&c.adapter, "adapter", "", "name of a loaded adapter")
	flag.StringVar(&c.rows, "rows", "", "training data file")
	flag.StringVar(&c.valid, "valid", "", "validation data file")
	flag.StringVar(&c.pictures, "pictures", "", "folder for screenshots of faults")
	show := flag.String("show", "", "write the screenshots of the documentation to this folder instead of checking")
	flag.Parse()
	checks, ok := kinds[*kind]
	if c.url = strings.TrimSuffix(c.url, "/"); c.url == "" || !ok {
		fmt.Fprintln(os.Stderr, "check_page: -url is missing, or -kind unknown")
		os.Exit(2)
	}
	if *show != "" {
		checks = []check{{"pictures", func(c *checker) error { return c.show(*show) }}}
	}
	if err := c.all(checks); err != nil {
		fmt.Fprintln(os.Stderr, "check_page:", err)
		os.Exit(1)
	}
}

// all runs checks in one browser.
func (c *checker) all(checks []check) error {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.Flag("disable-gpu", true))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // which does not run as root
	}
	all, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	browser, stop := chromedp.NewContext(all)
	defer stop()
	if err := chromedp.Do(browser); err != nil {
		return err
	}
	c.browser = browser
	passed, failed := 0, 0
	for _, x := range checks {
		if err := x.run(c); err != nil {
			failed++
			fmt.Printf("FAULT  %s: %v\n", x.name, err)
			continue
		}
		passed++
		fmt.Printf("ok     %s\n", x.name)
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		return fmt.Errorf("%d checks found faults", failed)
	}
	return nil
}
