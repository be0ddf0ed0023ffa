package migrate_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/train/config/migrate"
)

func ExampleConvert() {
	r, err := migrate.Convert("lora.yaml", []byte("model: m\ntrain: true\ndata: /rows\niters: 50\nlora_parameters: {rank: 4, scale: 2}\n"))
	fmt.Println(r.Source, len(r.Dropped), err)
	// Output: mlx-lm 1 <nil>
}
