// Whom a store's TLS certificate makes trusted: nobody but those that the system, or the user, trusts.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>

#include "object_storage/store_fixture.h"
#include "support/catch.h"
#include "support/temporary_directory.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

template <class Type, void (*Free)(Type*)>
struct Freed {
    void operator()(Type* object) const { Free(object); }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509, X509_free>>;
using Context = std::unique_ptr<SSL_CTX, Freed<SSL_CTX, SSL_CTX_free>>;
using Session = std::unique_ptr<SSL, Freed<SSL, SSL_free>>;

Certificate self_signed(EVP_PKEY* key, const std::string& alternative_name) {
    Certificate certificate(X509_new());
    X509* x = certificate.get();
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -86400);
    X509_gmtime_adj(X509_getm_notAfter(x), 86400);
    X509_set_pubkey(x, key);
    X509_NAME* name = X509_get_subject_name(x);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("store"), -1,
                               -1, 0);
    X509_set_issuer_name(x, name);
    X509_EXTENSION* extension =
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, alternative_name.c_str());
    X509_add_ext(x, extension, -1);
    X509_EXTENSION_free(extension);
    X509_sign(x, key, EVP_sha256());
    return certificate;
}

// Answers every request with an empty listing, one connection after the other.
class TlsStore {
  public:
    explicit TlsStore(const std::string& alternative_name)
        : key_(EVP_RSA_gen(2048)),
          certificate_(self_signed(key_.get(), alternative_name)),
          context_(SSL_CTX_new(TLS_server_method())) {
        SSL_CTX_use_certificate(context_.get(), certificate_.get());
        SSL_CTX_use_PrivateKey(context_.get(), key_.get());
        listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof(address);
        auto* generic = reinterpret_cast<sockaddr*>(&address);
        if (::bind(listener_, generic, size) != 0 || ::listen(listener_, 8) != 0 ||
            ::getsockname(listener_, generic, &size) != 0) {
            throw std::runtime_error("no socket for the TLS store");
        }
        port_ = ntohs(address.sin_port);
        thread_ = std::thread([this] { serve(); });
    }
    ~TlsStore() {
        ::shutdown(listener_, SHUT_RDWR);
        thread_.join();
        ::close(listener_);
    }
    TlsStore(const TlsStore&) = delete;
    TlsStore& operator=(const TlsStore&) = delete;

    [[nodiscard]] std::string endpoint() const { return "https://127.0.0.1:" + std::to_string(port_); }
    [[nodiscard]] int requests() const { return requests_; }
    void write_certificate(const std::string& path) const {
        BIO* memory = BIO_new(BIO_s_mem());
        PEM_write_bio_X509(memory, certificate_.get());
        char* text = nullptr;
        const long size = BIO_get_mem_data(memory, &text);
        std::ofstream(path) << std::string(text, static_cast<std::size_t>(size));
        BIO_free(memory);
    }

  private:
    void serve() {
        // OpenSSL writes to connections that the client has ended: SIGPIPE would end the test.
        sigset_t pipe;
        sigemptyset(&pipe);
        sigaddset(&pipe, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
        while (true) {
            const int connection = ::accept(listener_, nullptr, nullptr);
            if (connection < 0) return;
            const Session session(SSL_new(context_.get()));
            SSL_set_fd(session.get(), connection);
            char buffer[16384];
            if (SSL_accept(session.get()) == 1 && SSL_read(session.get(), buffer, sizeof(buffer)) > 0) {
                ++requests_;
                const std::string body =
                    "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
                const std::string answer =
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: " + std::to_string(body.size()) +
                    "\r\n\r\n" + body;
                SSL_write(session.get(), answer.data(), static_cast<int>(answer.size()));
                SSL_shutdown(session.get());
            }
            ::close(connection);
        }
    }

    Key key_;
    Certificate certificate_;
    Context context_;
    int listener_ = -1;
    int port_ = 0;
    std::atomic<int> requests_{0};
    std::thread thread_;
};

}  // namespace

TEST_CASE("a store whose certificate nobody vouches for, or for another name, gets no request", "[threads]") {
    const TemporaryDirectory directory;
    const std::string ca_file = directory / "ca.pem";
    const auto list = [](const TlsStore& tls, const std::string& trusted) {
        StoreFixture s;
        s.settings.endpoint = tls.endpoint();
        s.settings.ca_file = trusted;
        s.reconnect();
        const double start = s.clock.monotonic_s();
        const Thrown thrown = thrown_by([&] { s.files->list("s3://bucket"); });
        CHECK(s.clock.monotonic_s() == start);  // that does not get better by waiting
        return thrown;
    };
    const TlsStore store("IP:127.0.0.1");
    store.write_certificate(ca_file);
    const Thrown unknown = list(store, "");
    CHECK(unknown.code == Exit::Resource);
    CHECK_THAT(unknown.text, Catch::Contains("certificate"));
    CHECK(store.requests() == 0);
    CHECK(list(store, ca_file).text.empty());
    CHECK(store.requests() == 1);

    const TlsStore other("IP:127.0.0.2,DNS:store.example.com");
    other.write_certificate(ca_file);
    CHECK(list(other, ca_file).code == Exit::Resource);
    CHECK(other.requests() == 0);
}
