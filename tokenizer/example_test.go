package tokenizer_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/tokenizer"
)

func Example() {
	tok, err := tokenizer.Load("../testdata/tokenizers/llama3")
	if err != nil {
		fmt.Println(err)
		return
	}
	ids, err := tok.Encode("Hello,  world!", true)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(ids)
	text, err := tok.Decode(ids, true)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%q\n", text)
	// Output:
	// [0 43 72 79 302 15 224 280 269 79 71 4]
	// "Hello,  world!"
}

func ExampleStream() {
	tok, err := tokenizer.Load("../testdata/tokenizers/llama3")
	if err != nil {
		fmt.Println(err)
		return
	}
	ids, _ := tok.Encode("né日", false)
	s := tok.NewStream(true)
	for _, id := range ids {
		part, err := s.Push(id)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%q ", part)
	}
	fmt.Printf("%q\n", s.Flush())
	// Output: "n" "" "é" "" "" "日" ""
}
