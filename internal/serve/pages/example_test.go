package pages_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/serve/pages"
)

// Two questions about one document: the second finds the pages of what they share.
func Example() {
	pool, err := pages.New(pages.Options{Pages: 16, Rows: 4})
	if err != nil {
		panic(err)
	}
	root := pages.NewRoot([]byte("digest of the adapter"), nil)
	document := []int32{10, 11, 12, 13, 14, 15, 16, 17, 18}
	for _, question := range []int32{70, 80} {
		prompt := append(document, question)
		text := pool.Begin(root, prompt[:len(prompt)-1])
		fmt.Println(text.Len(), "tokens are there")
		if _, err := text.Append(prompt[text.Len():]...); err != nil {
			panic(err)
		}
		// Here a model reads the tokens and writes their keys and values.
		fmt.Println("pages", text.Pages(), "last row", text.Row(text.Len()-1))
		if err := text.Commit(text.Len()); err != nil {
			panic(err)
		}
	}
	fmt.Printf("%+v\n", pool.Stats())
	// Output:
	// 0 tokens are there
	// pages [0 1 2] last row 9
	// 8 tokens are there
	// pages [0 1 3] last row 13
	// {Pages:16 Used:4 Cached:0 Free:12 Queries:4 Hits:2 Evicted:0 Copied:0}
}

// Two answers to one prompt share its last page until one of them goes on.
func ExampleText_Fork() {
	pool, err := pages.New(pages.Options{Pages: 16, Rows: 4})
	if err != nil {
		panic(err)
	}
	text := pool.Begin(pages.Root{}, nil)
	must := func(c pages.Copy, err error) pages.Copy {
		if err != nil {
			panic(err)
		}
		return c
	}
	must(text.Append(1, 2, 3, 4, 5, 6))
	if err := text.Commit(6); err != nil {
		panic(err)
	}
	other, err := text.Fork()
	if err != nil {
		panic(err)
	}
	fmt.Printf("%+v\n", must(text.Append(7)))
	fmt.Printf("%+v\n", must(other.Append(8)))
	fmt.Println(text.Pages(), other.Pages())
	// Output:
	// {From:4 To:8 Rows:2}
	// {From:0 To:0 Rows:0}
	// [0 2] [0 1]
}
