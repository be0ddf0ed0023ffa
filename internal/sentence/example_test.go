package sentence_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/sentence"
)

func ExampleRead() {
	t, err := sentence.Read("../../testdata/encoders/mpnet")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(t.Pooling, t.MaxLength, "tokens,", t.Size(24), "elements")
	// Output: [mean] 32 tokens, 10 elements
}
