package config

import (
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/internal/data"
)

// TaskClassification is the task of classifiers: labels of texts.
const TaskClassification Task = "classification"

var classification = definition{
	name: TaskClassification, adapter: "SEQ_CLS", texts: true,
	doc:     "the label of a text or of a pair of texts (rows of text, optional text_pair, and label), by a head on the model (AutoModelForSequenceClassification). The head is trained and saved with the adapter; if the checkpoint has none, it is initialized randomly from seed.",
	section: "For task: classification. Labels and loss, as in transformers for the problem_type of the same name.",
	rows: func(c *Config, o *data.Options) {
		o.Rows, o.Problem, o.Classes = data.LabelledRows, c.Classification.Problem, c.Classification.Labels
	},
	rules: []rule{
		{"classification.labels", func(c *Config) bool {
			return len(c.Classification.Labels) > 0 && c.Classification.Problem == data.Regression
		}, "given besides problem: regression, which has no classes"},
		{"classification.labels", func(c *Config) bool {
			return len(c.Classification.Labels) == 1 && c.Classification.Problem == data.SingleLabel
		}, "found one class, expected two or more (of one class a row is or is not with problem: multi_label_classification)"},
	},
	check: func(c *Config) error {
		labels := c.Classification.Labels
		for i, name := range labels {
			if slices.Contains(labels[:i], name) {
				return &Error{c.places["classification.labels"], "classification.labels", fmt.Sprintf("found %q twice, expected names that differ", shorten(name)), ErrValue}
			}
		}
		return nil
	},
}

// Classification configures the labels of rows.
type Classification struct {
	Labels  Strings      `yaml:"labels" also:"classes,class_names,id2label" doc:"Names of the classes, in the order of their IDs. Default: the names of init_adapter, else of the model (id2label of config.json), else of the training rows: names in alphabetical order or, if labels are IDs, the numbers up to the largest."`
	Problem data.Problem `yaml:"problem" default:"single_label_classification" one:"single_label_classification|multi_label_classification|regression" also:"problem_type" doc:"Type of the labels; the default is problem_type of config.json, if present. single_label_classification: each row has one class, and label is its name or its ID, from 0. multi_label_classification: label is a list of names or IDs, which may be empty, or has 0 or 1 for each class. regression: label is a number."`
}
