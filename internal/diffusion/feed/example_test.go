package feed_test

import (
	"context"
	"fmt"
	"log"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/data/cache"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/feed"
	"github.com/lorafuse/lorafuse/internal/diffusion/flow"
)

func ExampleNew() {
	c, err := cache.Open("../../data/cache/testdata/dit", cache.Options{Unkeyed: cache.Accept})
	if err != nil {
		log.Fatal(err)
	}
	levels, err := flow.Parse([]byte("{}"))
	if err != nil {
		log.Fatal(err)
	}
	f, err := feed.New(context.Background(), feed.Options{
		Samples: []cache.Sample{{Image: "000.png", Caption: "000.txt"}, {Image: "001.png", Caption: "001.txt"}},
		Cache:   c, Model: &plain{space: dit.Space{Channels: 4, Multiple: 2, Text: 32}}, Table: levels.Table(), BatchSize: 1, Seed: 42, Shuffle: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(f)
	var b data.Batch
	for step := range 3 {
		if err := f.Fill(&b, step, 0); err != nil {
			log.Fatal(err)
		}
		s := f.Model.(*plain).given[0]
		fmt.Printf("step %d: %d tokens of text, timestep %.0f\n", step, len(s.Prompt.Mask), s.Timestep)
	}
	// Output:
	// 2 pictures of one size, 2 steps per epoch
	// step 0: 5 tokens of text, timestep 640
	// step 1: 7 tokens of text, timestep 500
	// step 2: 7 tokens of text, timestep 239
}
