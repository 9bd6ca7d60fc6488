//! The command line of `nowait-serve`.

mod image;

use clap::{Parser, Subcommand};
use std::path::PathBuf;

pub(crate) use image::{ImageArgs, ImageCommand, KeyFile, TransferArgs};

#[derive(Debug, Parser)]
#[command(name = "nowait", version, propagate_version = true, about = ABOUT)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const ABOUT: &str = "The servers of nowait, and images on object stores";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve images as block devices, by NBD, FUSE, vhost-user and ublk, without double caching.
    #[command(after_help = SERVE_SHORT, after_long_help = SERVE_EXAMPLES)]
    Serve(Box<nowait_server::ServeArgs>),
    /// Make, list, check and remove images on object stores.
    #[command(subcommand, after_help = image::IMAGE_SHORT, after_long_help = image::IMAGE_EXAMPLES)]
    Image(ImageCommand),
    /// Describe these commands for completions, as JSON.
    #[command(hide = true)]
    Describe,
    /// Write the manual pages of these commands into a directory.
    #[command(hide = true)]
    Man { dir: PathBuf },
}

const SERVE_SHORT: &str = "\
Examples:
  nowait serve disk.img --nbd unix:/run/disk.sock
  nowait serve disk.img --ublk 0                     then: mkfs.ext4 /dev/ublkb0
  nowait serve vm=s3://disks/vm --nbd unix:/run/nbd.sock
More of each option, and the others: nowait serve --help";

const SERVE_EXAMPLES: &str = "\
SIGTERM or SIGINT: answers what is in flight, makes it durable, and ends. SIGHUP: takes the sizes
of the files as they are now, and reads certificate, key and authority again.

Examples:
  nowait serve disk.img --nbd unix:/run/disk.sock
  nowait serve disk.img --fuse /run/disk             then: losetup -f --direct-io=on /run/disk
  nowait serve disk.img --ublk 0                     then: mkfs.ext4 /dev/ublkb0
  nowait serve vm=/images/vm.raw data=/dev/vg/data --nbd unix:/run/nbd.sock
  nowait serve vm=disk.img,offset=1M,length=20G iso=cd.iso,read-only --nbd unix:/run/nbd.sock
  nowait serve disk.img --nbd unix:/run/disk.sock --exit-with-last-client --pid-file /run/disk.pid
  nbdinfo nbd+unix:///vm?socket=/run/nbd.sock
A disk of a virtual machine, by NBD, and by vhost-user, where the server shares its memory:
  qemu-system-x86_64 … -drive file=nbd+unix:///vm?socket=/run/nbd.sock,format=raw,if=virtio
  nowait serve vm=/images/vm.raw --vhost-user vm=/run/vm.sock
  qemu-system-x86_64 … -m 4G -object memory-backend-memfd,id=mem,size=4G,share=on \\
      -machine q35,memory-backend=mem -chardev socket,id=vm,path=/run/vm.sock,reconnect=1 \\
      -device vhost-user-blk-pci,chardev=vm,num-queues=4
In a container without root:
  nbdcopy disk.raw nbd+unix:///vm?socket=/run/nbd.sock
  qemu-img convert -O qcow2 nbd+unix:///vm?socket=/run/nbd.sock backup.qcow2
A remote disk, over TLS, for who has a certificate for the name vm7:
  nowait serve vm=/images/vm.raw --nbd tcp:0.0.0.0:10809 --allow tls:vm7 \\
      --tls-cert server-cert.pem --tls-key server-key.pem --tls-client-ca ca-cert.pem
  nbdinfo nbds://server.example/vm?tls-certificates=/etc/pki/nbd";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
