// Command pictures teaches a small model that draws plain shapes to draw them as lamps in the
// dark, and shows its images before and after. The program itself draws all training images,
// for the style and for the base model.
//
//	go run ./examples/pictures         teaches the style
//	go run ./examples/pictures -base   trains the base model again, which takes longer
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	_ "github.com/lorafuse/lorafuse/backend/all"
	"github.com/lorafuse/lorafuse/internal/data/cache"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/train/config"
)

// Folders of the example, relative to the root of the repository.
const (
	folder   = "examples/pictures"
	modelDir = folder + "/model"
	outputs  = folder + "/output"
)

func main() {
	base := flag.Bool("base", false, "make the model anew")
	flag.Parse()
	run := teach
	if *base {
		run = makeBase
	}
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// perCaption is the number of images per caption for training the base model.
const perCaption = 16

// perLamp is the number of images per caption for training the style.
const perLamp = 4

// makeBase trains the base model from random weights.
func makeBase(ctx context.Context) error {
	dir := filepath.Join(outputs, "base")
	var all []picture
	for i := range perCaption * len(colours) * len(shapes) {
		all = append(all, picture{colour: i % len(colours), shape: i / len(colours) % len(shapes)}.place(i))
	}
	if err := prepare(ctx, dir, all, plain); err != nil {
		return err
	}
	if err := begin(filepath.Join(dir, "model")); err != nil {
		return err
	}
	sum, err := learn(ctx, "base.yaml")
	if err != nil {
		return err
	}
	if err := os.RemoveAll(modelDir); err != nil {
		return err
	}
	return finish(filepath.Join(dir, "model"), sum.Adapter, modelDir)
}

// teach trains the style on a third of the captions and shows its effect on all of them.
func teach(ctx context.Context) error {
	var learned, all []picture
	for i := range len(colours) * len(shapes) {
		p := picture{colour: i % len(colours), shape: i / len(colours)}
		all = append(all, p)
		if i%3 == p.shape%3 {
			for j := range perLamp {
				learned = append(learned, p.place(perLamp*i+j))
			}
		}
	}
	if err := prepare(ctx, filepath.Join(outputs, "style"), learned, glow); err != nil {
		return err
	}
	began := time.Now()
	sum, err := learn(ctx, "style.yaml")
	if err != nil {
		return err
	}
	fmt.Printf("learned of %d pictures in %.0f s\n", len(learned), time.Since(began).Seconds())
	return show(ctx, sum.Adapter, all)
}

// prepare draws images with captions and builds a cache of their encodings. It deletes the
// results of earlier runs.
func prepare(ctx context.Context, dir string, all []picture, s style) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	samples, err := write(filepath.Join(dir, "images"), all, s)
	if err != nil {
		return err
	}
	recipe := cache.Recipe{Model: folder}
	c, err := cache.Open(filepath.Join(dir, "cache"), cache.Options{Text: recipe, Image: recipe})
	if err != nil {
		return err
	}
	if _, err := c.Build(ctx, samples, cache.Encoders{Text: text, Image: latent}, cache.BuildOptions{}); err != nil {
		return err
	}
	return c.Close()
}

// learn runs the training that a configuration file describes.
func learn(ctx context.Context, file string) (*train.Summary, error) {
	c, err := config.Load(filepath.Join(folder, file))
	if err != nil {
		return nil, err
	}
	r, err := train.New(ctx, c, train.Observer{Step: func(s train.Report) {
		if s.Step%50 == 0 {
			fmt.Fprintf(os.Stderr, "step %4d of %d  loss %.4f\n", s.Step, s.Steps, s.Loss)
		}
	}})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.Train(ctx)
}
