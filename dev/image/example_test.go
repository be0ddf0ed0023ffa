package image_test

import (
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/dev/image"
)

func Example() {
	f, err := image.Parse(strings.NewReader("FROM golang AS build\nRUN make\nFROM scratch AS app\nCOPY --from=build /x /x\nCMD [\"/x\"]\n"))
	if err != nil {
		panic(err)
	}
	stages, err := f.Target("app")
	for _, s := range stages {
		fmt.Println(s.Name, "from", s.From, len(s.Steps), "steps")
	}
	fmt.Println(err)
	// Output:
	// build from golang 1 steps
	// app from scratch 2 steps
	// <nil>
}
