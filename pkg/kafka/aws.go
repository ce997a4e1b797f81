package kafka

import (
	"context"
	"fmt"
	"sync"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/aws"
)

// awsTimeout limits the search for credentials. A starting stage waits longer for Kafka, so that it can log the reason.
const awsTimeout = 5 * time.Second

// iam is kgo's AWS_MSK_IAM, with the credentials of the process.
type iam struct{}

func (iam) Name() string { return awsMSKIAM }

func (iam) Authenticate(ctx context.Context, host string) (sasl.Session, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, awsTimeout)
	defer cancel()
	auth, err := awsCredentials(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("looking for AWS credentials in environment, web identity, profile, container and instance: %w", err)
	}
	auth.UserAgent = "skein"
	session, first, err := auth.AsManagedStreamingIAMMechanism().Authenticate(ctx, host)
	if err != nil {
		return nil, nil, fmt.Errorf("signing for MSK: %w: the broker's name has none, so set AWS_REGION", err)
	}
	return session, first, nil
}

// awsChain has the credentials of the process. All clients share it, because it asks STS or the instance's metadata and keeps the answer
// until it expires.
var awsChain struct {
	sync.Mutex
	provider sdk.CredentialsProvider // nil before the first use
}

func awsCredentials(ctx context.Context) (aws.Auth, error) {
	awsChain.Lock()
	defer awsChain.Unlock()
	if awsChain.provider == nil {
		cfg, err := config.LoadDefaultConfig(ctx)
		if err != nil {
			return aws.Auth{}, err
		}
		awsChain.provider = cfg.Credentials
	}
	c, err := awsChain.provider.Retrieve(ctx)
	return aws.Auth{AccessKey: c.AccessKeyID, SecretKey: c.SecretAccessKey, SessionToken: c.SessionToken}, err
}
